//! Replaces `pods` without the feature `workers`: no kubelet runs.

use super::answer::{Answered, Refusal};

const REFUSED: &str = "Pods only run with the feature \"workers\" of the crate fake-apiserver";

pub(super) async fn script_pods() -> Answered {
    Err(Refusal::unsupported(REFUSED))
}

pub(super) async fn set_kubelet() -> Answered {
    Err(Refusal::unsupported(REFUSED))
}

pub(super) async fn forget_scripts() -> Answered {
    Err(Refusal::unsupported(REFUSED))
}
