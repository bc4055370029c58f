//! How a verb's cases become tests in another crate.

/// Lists the cases of one verb, and exports the macro that makes tests of them.
///
/// They are run by [`run`](crate::run), unless another function is named. The cases themselves are private functions: one that is not listed is dead code, and the compiler says so. The `$`
/// in front is for the macro inside, which cannot write its own.
macro_rules! cases {
    ($dollar:tt $verb:ident as $exported:ident: $($case:ident),* $(,)?) => {
        cases! { $dollar $verb as $exported, by run: $($case),* }
    };
    ($dollar:tt $verb:ident as $exported:ident, by $run:ident: $($case:ident),* $(,)?) => {
        #[doc(hidden)]
        pub mod listed {
            $(
                pub fn $case(harness: $crate::CaseHarness) -> $crate::CaseFuture {
                    Box::pin(super::$case(harness))
                }
            )*
        }

        #[doc(hidden)]
        #[macro_export]
        macro_rules! $exported {
            ($dollar factory:expr) => {
                mod $verb {
                    #[allow(unused_imports, reason = "the factory may be named by its full path")]
                    use super::*;
                    $(
                        #[test]
                        fn $case() {
                            $crate::$run($dollar factory, $crate::$verb::listed::$case);
                        }
                    )*
                }
            };
        }
    };
}
