//! Enums that are also lists.
//!
//! Purpose: reports, tests and readers of numbers go through all variants of an enum; a list beside it could miss one. It stands here because every crate
//! that has such enums depends on this one. Input: the enum. Output: the enum, `ALL`, and what its variants are called. **Invariant**: `ALL` has every variant
//! once, in the order of the source.

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
            /// Every variant, in the order of the source.
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
