//! Enums that are also lists.

/// Declares an enum whose variants hold nothing, and `ALL`, its variants in their order.
///
/// With `enum Name: text` each variant has words behind a colon, which the method `text` returns.
#[macro_export]
macro_rules! listed {
    (
        $(#[$meta:meta])*
        $vis:vis enum $Name:ident { $($(#[$of:meta])* $Variant:ident $(= $number:literal)?,)* }
    ) => {
        $(#[$meta])*
        $vis enum $Name {
            $($(#[$of])* $Variant $(= $number)?,)*
        }

        impl $Name {
            /// In the order of their numbers.
            $vis const ALL: [$Name; [$($Name::$Variant),*].len()] = [$($Name::$Variant),*];
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis enum $Name:ident: $text:ident {
            $($(#[$of:meta])* $Variant:ident $(= $number:literal)?: $words:literal,)*
        }
    ) => {
        $crate::listed! {
            $(#[$meta])*
            $vis enum $Name { $($(#[$of])* $Variant $(= $number)?,)* }
        }

        impl $Name {
            /// In words.
            $vis const fn $text(self) -> &'static str {
                match self {
                    $($Name::$Variant => $words,)*
                }
            }
        }
    };
}
