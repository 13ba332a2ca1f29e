//! Rules for placing a Pod with respect to other Pods: affinity, anti-affinity and topology spread (`InterPodAffinity`
//! and `PodTopologySpread` of the scheduler). Preferences rank the nodes that fit.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::cluster::selects;
use super::node_rules::{fits_affinity, fits_term, tolerates_node};
use super::pods::{is_finished, label};
use super::resource::Resource;
use super::sees::{Sees, selector_of};
use crate::api::json::Map;
use crate::api::object::Object;
use crate::registry::types::cursor::Cursor;

const NO_AFFINITY: &str = "node(s) didn't match pod affinity rules";
const NO_ANTI_AFFINITY: &str = "node(s) didn't match pod anti-affinity rules";
const REPELLED: &str = "node(s) didn't satisfy existing pods anti-affinity rules";
const NO_SPREAD: &str = "node(s) didn't match pod topology spread constraints";
const NO_SPREAD_LABEL: &str = "node(s) didn't match pod topology spread constraints (missing required label)";

/// Reason why a node is not allowed.
pub(crate) struct Refused {
    pub(crate) why: &'static str,
    /// Set if the removal of another Pod could make the node allowed.
    pub(crate) can_change: bool,
}

/// The placement rules of a Pod, with the numbers of Pods that they select.
pub(crate) struct Placement<'a> {
    pod: &'a Object,
    attracts: Vec<Term<'a>>,
    /// Set if the Pod matches its own affinity.
    attracts_itself: bool,
    repels: Vec<Term<'a>>,
    /// Anti-affinity terms of other Pods that apply to this Pod.
    repelled_by: Vec<Term<'a>>,
    spreads: Vec<Spread<'a>>,
    preferences: Vec<(i64, Term<'a>)>,
}

/// The values of a node label, each with the number of Pods that an affinity term or a spread constraint selects.
struct Term<'a> {
    topology: String,
    counts: BTreeMap<&'a str, i64>,
    /// Uids of the counted Pods.
    pods: BTreeSet<&'a str>,
}

/// A constraint of `topologySpreadConstraints`.
struct Spread<'a> {
    term: Term<'a>,
    is_required: bool,
    max_skew: i64,
    min_domains: i64,
    /// The lowest number of Pods for any value of the label.
    minimum: i64,
    /// 1 if the Pod itself is selected, otherwise 0.
    own: i64,
}

impl<'a> Term<'a> {
    /// Counts the Pods by the label values of their nodes.
    fn of(topology: &str, pods: impl Iterator<Item = &'a Arc<Object>>, sees: &Sees<'a>) -> Self {
        let mut term = Self {
            topology: topology.to_owned(),
            counts: BTreeMap::new(),
            pods: BTreeSet::new(),
        };
        for pod in pods {
            let node = Cursor::root(pod).text("spec.nodeName");
            let node = sees.cluster.find(Resource::Node, "", node);
            if let Some(value) = node.and_then(|it| label(it, topology)) {
                *term.counts.entry(value).or_default() += 1;
                term.pods.insert(pod.uid());
            }
        }
        term
    }

    /// Adds a number to the count of a node if the term selects the Pod.
    fn change(&mut self, pod: &Object, node: &Object, by: i64) {
        if !self.pods.contains(pod.uid()) {
            return;
        }
        if let Some(value) = label(node, &self.topology)
            && let Some(count) = self.counts.get_mut(value)
        {
            *count += by;
        }
    }

    /// Returns the lowest number of Pods for any value of the label; 0 if there are fewer values than `min_domains`.
    fn lowest(&self, min_domains: i64) -> i64 {
        let values = i64::try_from(self.counts.len()).unwrap_or(i64::MAX);
        match values < min_domains {
            true => 0,
            false => self.counts.values().min().copied().unwrap_or(0),
        }
    }

    /// Returns the number of Pods on nodes with the same label value as a node; `None` if the node lacks the label.
    fn count(&self, node: &Object) -> Option<i64> {
        label(node, &self.topology).map(|value| self.counts.get(value).copied().unwrap_or(0))
    }
}

impl<'a> Placement<'a> {
    /// Collects the rules of a Pod.
    pub(crate) fn of(pod: &'a Object, nodes: &[&'a Arc<Object>], sees: &Sees<'a>) -> Self {
        let terms = |path: &str| -> Vec<&Map> { Cursor::root(pod).maps(path).collect() };
        let term = |it: &&Map| {
            let topology = Cursor::root(it).text("topologyKey");
            Term::of(topology, concerned(it, pod, sees), sees)
        };
        let required = |kind: &str| {
            terms(&format!(
                "spec.affinity.{kind}.requiredDuringSchedulingIgnoredDuringExecution"
            ))
        };
        let attracting = required("podAffinity");
        let mut preferences = Vec::new();
        for (kind, sign) in [("podAffinity", 1), ("podAntiAffinity", -1)] {
            for it in terms(&format!(
                "spec.affinity.{kind}.preferredDuringSchedulingIgnoredDuringExecution"
            )) {
                let weight = sign * Cursor::root(it).integer("weight").unwrap_or(0);
                let affinity = Cursor::root(it).map_or_empty("podAffinityTerm");
                preferences.push((weight, term(&affinity)));
            }
        }
        let spread = |it: &Map| Spread::of(it, pod, nodes, sees);
        Self {
            attracts: attracting.iter().map(term).collect(),
            attracts_itself: attracting.iter().all(|it| is_concerned(it, pod, pod, sees)),
            repels: required("podAntiAffinity").iter().map(term).collect(),
            repelled_by: repelling(pod, sees),
            spreads: terms("spec.topologySpreadConstraints")
                .into_iter()
                .filter_map(spread)
                .collect(),
            preferences,
            pod,
        }
    }

    /// Removes a Pod of a node from the numbers.
    pub(crate) fn remove(&mut self, pod: &Object, node: &Object) {
        self.change(pod, node, -1);
    }

    /// Adds a removed Pod of a node to the numbers again.
    pub(crate) fn restore(&mut self, pod: &Object, node: &Object) {
        self.change(pod, node, 1);
    }

    fn change(&mut self, pod: &Object, node: &Object, by: i64) {
        let terms = self.attracts.iter_mut().chain(&mut self.repels);
        let terms = terms.chain(&mut self.repelled_by);
        let terms = terms.chain(self.preferences.iter_mut().map(|(_, term)| term));
        terms.for_each(|it| it.change(pod, node, by));
        for spread in &mut self.spreads {
            spread.term.change(pod, node, by);
            spread.minimum = spread.term.lowest(spread.min_domains);
        }
    }

    /// Returns `true` if the Pod matches its own affinity, and no existing Pod does.
    fn is_first(&self) -> bool {
        let mut counts = self.attracts.iter().flat_map(|it| it.counts.values());
        self.attracts_itself && counts.all(|count| *count == 0)
    }

    /// Returns the reason why a node is not allowed, with the scheduler's message.
    pub(crate) fn refusal(&self, node: &Object) -> Option<Refused> {
        let why = self.reason(node)?;
        Some(Refused {
            can_change: !matches!(why, NO_AFFINITY | NO_SPREAD_LABEL),
            why,
        })
    }

    fn reason(&self, node: &Object) -> Option<&'static str> {
        for spread in self.spreads.iter().filter(|it| it.is_required) {
            match spread.term.count(node) {
                None => return Some(NO_SPREAD_LABEL),
                Some(count) if count + spread.own - spread.minimum > spread.max_skew => return Some(NO_SPREAD),
                Some(_) => {}
            }
        }
        let meets = |it: &Term| it.count(node).is_some_and(|count| count > 0 || self.is_first());
        if !self.attracts.iter().all(meets) {
            return Some(NO_AFFINITY);
        }
        let holds_some = |it: &Term| it.count(node).is_some_and(|count| count > 0);
        if self.repels.iter().any(holds_some) {
            return Some(NO_ANTI_AFFINITY);
        }
        self.repelled_by.iter().any(holds_some).then_some(REPELLED)
    }

    /// Scores a node by the preferences of the Pod. A preference for or against other Pods counts once for each of
    /// these Pods, and each Pod that a soft spread constraint counts reduces the score by 1.
    pub(crate) fn score(&self, node: &Object) -> i64 {
        let by_pods = self
            .preferences
            .iter()
            .map(|(weight, term)| weight * term.count(node).unwrap_or(0));
        let soft = self.spreads.iter().filter(|it| !it.is_required);
        let by_spread = soft.map(|it| -it.term.count(node).unwrap_or(0));
        let path = "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution";
        let by_node = Cursor::root(self.pod).maps(path).filter_map(|it| {
            let it = Cursor::root(it);
            fits_term(it.map_or_empty("preference"), node).then(|| it.integer("weight").unwrap_or(0))
        });
        by_pods.chain(by_spread).chain(by_node).sum()
    }
}

impl<'a> Spread<'a> {
    fn of(constraint: &Map, pod: &Object, nodes: &[&'a Arc<Object>], sees: &Sees<'a>) -> Option<Self> {
        let cursor = Cursor::root(constraint);
        let topology = cursor.text("topologyKey");
        let selector = selector_of(constraint, "labelSelector")?;
        let keys: Vec<&str> = cursor
            .list("matchLabelKeys")
            .iter()
            .filter_map(|it| it.as_str())
            .collect();
        let counts = |it: &Object| {
            let same = |key: &&str| label(pod, key).is_none_or(|value| label(it, key) == Some(value));
            selects(&selector, it) && keys.iter().all(same)
        };
        let is_allowed = |node: &Object| {
            (cursor.text("nodeAffinityPolicy") == "Ignore" || fits_affinity(pod, node))
                && (cursor.text("nodeTaintsPolicy") != "Honor" || tolerates_node(pod, node))
        };
        let allowed: BTreeSet<&str> = nodes.iter().filter(|it| is_allowed(it)).map(|it| it.name()).collect();
        let others = sees.cluster.selected(Resource::Pod, pod.namespace(), &selector);
        let others = others.into_iter().filter(|it| {
            let node = Cursor::root(it).text("spec.nodeName");
            counts(it) && !is_finished(it) && !it.is_terminating() && allowed.contains(node)
        });
        let mut term = Term::of(topology, others, sees);
        for node in nodes.iter().copied().filter(|it| allowed.contains(it.name())) {
            if let Some(value) = label(node, topology) {
                term.counts.entry(value).or_default();
            }
        }
        let min_domains = cursor.integer("minDomains").unwrap_or(0);
        Some(Self {
            is_required: cursor.text("whenUnsatisfiable") != "ScheduleAnyway",
            max_skew: cursor.integer("maxSkew").unwrap_or(1),
            own: i64::from(counts(pod)),
            minimum: term.lowest(min_domains),
            min_domains,
            term,
        })
    }
}

/// Returns the Pods that have a node and that a term of `owner` selects.
fn concerned<'a>(term: &Map, owner: &Object, sees: &Sees<'a>) -> impl Iterator<Item = &'a Arc<Object>> + use<'a> {
    let mut found = Vec::new();
    if let Some(selector) = selector_of(term, "labelSelector") {
        for namespace in namespaces(term, owner, sees) {
            found.extend(sees.cluster.selected(Resource::Pod, &namespace, &selector));
        }
    }
    found
        .into_iter()
        .filter(|it| !Cursor::root(it).text("spec.nodeName").is_empty() && !is_finished(it))
}

/// Returns `true` if a term of `owner` selects a Pod.
fn is_concerned(term: &Map, owner: &Object, pod: &Object, sees: &Sees<'_>) -> bool {
    let selector = selector_of(term, "labelSelector");
    selector.is_some_and(|it| selects(&it, pod)) && namespaces(term, owner, sees).iter().any(|it| it == pod.namespace())
}

fn namespaces(term: &Map, owner: &Object, sees: &Sees<'_>) -> BTreeSet<String> {
    let named = Cursor::root(term)
        .list("namespaces")
        .iter()
        .filter_map(|it| it.as_str());
    let mut found: BTreeSet<String> = named.map(str::to_owned).collect();
    match selector_of(term, "namespaceSelector") {
        Some(selector) => {
            let all = sees.cluster.all(Resource::Namespace);
            found.extend(all.filter(|it| selects(&selector, it)).map(|it| it.name().to_owned()));
        }
        None if found.is_empty() => drop(found.insert(owner.namespace().to_owned())),
        None => {}
    }
    found
}

/// Returns the required anti-affinity terms of other Pods that select a Pod, each with the label value of the other
/// Pod's node.
fn repelling<'a>(pod: &Object, sees: &Sees<'a>) -> Vec<Term<'a>> {
    let others = sees
        .cluster
        .repelling()
        .filter(|it| !Cursor::root(it).text("spec.nodeName").is_empty() && !is_finished(it));
    let mut terms = Vec::new();
    for other in others {
        let path = "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution";
        for term in Cursor::root(other).maps(path) {
            if is_concerned(term, other, pod, sees) {
                let topology = Cursor::root(term).text("topologyKey");
                terms.push(Term::of(topology, std::iter::once(other), sees));
            }
        }
    }
    terms
}
