//! Failed attempts that are recorded in objects with numbers in their names, such as `web-request-1`, with one object
//! for each attempt.

use std::collections::BTreeSet;

use super::counts::{Additional, Count, Numbered, Texts, counts_beside, only_counts, texts_of};
use super::difference::Difference;
use super::end_state::EndState;
use super::key::resource_of;
use super::observed::history;
use super::pair::{Pair, UNEXPECTED};
use crate::mask::Mask;

impl EndState {
    /// Returns the records of failures if `found` only differs from this state in such records: fields, and additional
    /// objects of a history.
    pub(super) fn failures(&self, found: &Self, mask: &Mask, differences: &[Difference]) -> Vec<Count> {
        let whole: Vec<&Difference> = differences.iter().filter(|it| it.path.is_empty()).collect();
        if whole.is_empty() {
            return only_counts(differences);
        }
        if whole.iter().any(|it| it.text != UNEXPECTED) {
            return Vec::new();
        }
        let histories: BTreeSet<String> = whole.iter().map(|it| history(&it.key)).collect();
        let mut counts = Vec::new();
        let mut objects = 0;
        for name in &histories {
            let (expected, found) = (self.numbered(name, mask), found.numbered(name, mask));
            objects += found.len().saturating_sub(expected.len()) as u64;
            match Additional::between(&expected, found) {
                Some(additional) => counts.push(Count::of_objects(name, additional)),
                None => return Vec::new(),
            }
        }
        let others = differences.iter().filter(|it| !histories.contains(&history(&it.key)));
        let of_others = counts_beside(others.clone(), objects);
        match of_others.len() == others.count() {
            true => counts.into_iter().chain(of_others).collect(),
            false => Vec::new(),
        }
    }

    /// Returns the texts in the objects of a history, in the order of the numbers in their names.
    fn numbered(&self, name: &str, mask: &Mask) -> Vec<Texts> {
        let pair = Pair::new([self, self], mask);
        let mut objects = Vec::new();
        for (key, all) in self.all().filter(|(key, _)| history(key) == name) {
            let resource = resource_of(key);
            let numbers = Numbered::of(key).map_or_else(Vec::new, |it| it.numbers);
            for kept in all {
                let mut object = pair.shown(0, key, kept);
                mask.remove(resource, "", &mut object);
                if let Some(metadata) = object["metadata"].as_object_mut() {
                    metadata.remove("name");
                }
                objects.push((numbers.clone(), texts_of(&object)));
            }
        }
        objects.sort();
        objects.into_iter().map(|(_, texts)| texts).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TestCluster;
    use crate::objects::config_map;
    use crate::work::Work;

    /// Creates numbered requests with these results, and an object with the number of the last request.
    async fn requests(results: &[&str]) -> EndState {
        let cluster = TestCluster::start();
        for (number, result) in (1..).zip(results) {
            let request = config_map(&format!("web-request-{number}"));
            cluster.create(request.data("result", result)).await;
        }
        let last = results.len().to_string();
        cluster.create(config_map("web").data("request", &last)).await;
        EndState::of(cluster.server(), 0, &Work::default())
    }

    #[rstest::rstest]
    #[case::failed_request(&["failed", "issued"], 2)]
    #[case::two_failed_requests(&["failed", "failed", "issued"], 2)]
    #[case::duplicate(&["issued", "issued"], 0)]
    #[case::different_results(&["x7b2", "k9d4", "issued"], 0)]
    #[case::no_success(&["failed", "failed"], 0)]
    #[tokio::test]
    async fn objects_of_failed_attempts_are_records_of_failures(#[case] results: &[&str], #[case] expected: usize) {
        let (one, other, mask) = (requests(&["issued"]).await, requests(results).await, Mask::default());
        let differences = one.differences(&other, &mask);
        assert_eq!(
            one.failures(&other, &mask, &differences).len(),
            expected,
            "{differences:?}"
        );
    }

    #[tokio::test]
    async fn missing_object_is_no_record_of_a_failure() {
        let (one, other, mask) = (
            requests(&["issued", "issued"]).await,
            requests(&["issued"]).await,
            Mask::default(),
        );
        let differences = one.differences(&other, &mask);
        assert_ne!(differences.len(), 0);
        assert_eq!(one.failures(&other, &mask, &differences), []);
    }
}
