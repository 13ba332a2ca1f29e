//! In the place of `cel` where the feature `cel` is off: no expression is evaluated, and nothing is wrong with one.

/// Set if expressions are evaluated at all.
pub(crate) const IS_EVALUATED: bool = false;

pub(crate) mod output {
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Names;

    impl Names {
        pub(crate) fn declare(&mut self, _: &str, _: &str) {}
    }
}

pub(crate) mod program {
    pub(crate) fn problem(_: &str, _: &[&str], _: &[&str], _: Option<&super::output::Names>) -> Option<String> {
        None
    }
}
