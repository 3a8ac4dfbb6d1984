//! Enums that are also lists.

/// Declares an enum whose variants hold nothing, and `ALL`, its variants in their order.
#[macro_export]
macro_rules! listed {
    ($(#[$meta:meta])* $vis:vis enum $Name:ident { $($(#[$of:meta])* $Variant:ident $(= $number:literal)?,)* }) => {
        $(#[$meta])*
        $vis enum $Name {
            $($(#[$of])* $Variant $(= $number)?,)*
        }

        impl $Name {
            /// In the order of their numbers.
            $vis const ALL: [$Name; [$($Name::$Variant),*].len()] = [$($Name::$Variant),*];
        }
    };
}
