//! Which instructions are used: every way makes the same bytes.

/// How words are dealt with. All ways make the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// What any processor can.
    Scalar,
    /// Eight words at a time.
    Avx2,
    /// Sixteen words at a time.
    Avx512,
}

impl Variant {
    /// Every variant, the slowest first.
    pub const ALL: [Variant; 3] = [Variant::Scalar, Variant::Avx2, Variant::Avx512];

    /// Name that people read.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Variant::Scalar => "scalar",
            Variant::Avx2 => "avx2",
            Variant::Avx512 => "avx512",
        }
    }

    /// Whether this processor can.
    #[must_use]
    pub fn is_available(self) -> bool {
        match self {
            Variant::Scalar => true,
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Variant::Avx2 => has_avx2(),
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Variant::Avx512 => has_avx512(),
            #[cfg(not(all(target_arch = "x86_64", not(miri))))]
            Variant::Avx2 | Variant::Avx512 => false,
        }
    }

    /// The fastest on this processor.
    #[must_use]
    pub fn fastest() -> Variant {
        Variant::ALL.into_iter().rev().find(|variant| variant.is_available()).unwrap_or(Variant::Scalar)
    }

    /// This one, or [`Variant::Scalar`] where it is not available.
    #[must_use]
    pub(crate) fn checked(self) -> Variant {
        if self.is_available() { self } else { Variant::Scalar }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("popcnt")
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn has_avx512() -> bool {
    has_avx2()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
}

/// A function that is compiled three times, from the same lines: for any processor, with AVX2 and with AVX-512. What the compiler
/// makes of them has the same results, since it never changes the order or the rounding of an operation. The body must be
/// `inline(always)`.
macro_rules! widened {
    ($(#[$note:meta])* $seen:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $out:ty)? = $body:path;) => {
        $(#[$note])*
        #[allow(unsafe_code, reason = "functions for processors that can; which was looked up")]
        #[inline]
        $seen fn $name(variant: crate::variant::Variant, $($arg: $type),*) $(-> $out)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,popcnt")]
            fn avx2($($arg: $type),*) $(-> $out)? {
                $body($($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
            fn avx512($($arg: $type),*) $(-> $out)? {
                $body($($arg),*)
            }
            match variant.checked() {
                // SAFETY: the processor has it, as `checked` found.
                #[cfg(target_arch = "x86_64")]
                crate::variant::Variant::Avx2 => unsafe { avx2($($arg),*) },
                // SAFETY: the processor has it, as `checked` found.
                #[cfg(target_arch = "x86_64")]
                crate::variant::Variant::Avx512 => unsafe { avx512($($arg),*) },
                _ => $body($($arg),*),
            }
        }
    };
}
pub(crate) use widened;
