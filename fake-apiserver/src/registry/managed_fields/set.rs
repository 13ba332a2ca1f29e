//! `FieldSet`: a set of field paths as a sorted tree.

use std::cmp::Ordering;
use std::fmt::Write as _;

use super::element::Element;

/// A set of field paths. Each node is a member, or has members below it, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldSet<'a> {
    /// Sorted by element; all nodes are non-empty.
    nodes: Vec<Node<'a>>,
}

/// One element and the paths below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node<'a> {
    pub(super) element: Element<'a>,
    /// Set if the path that ends here is in the set.
    pub(super) member: bool,
    /// The paths below this element.
    pub(super) children: FieldSet<'a>,
}

impl Node<'_> {
    fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }
}

impl<'a> FieldSet<'a> {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Creates a set with one path.
    pub(super) fn of_path(path: &[&'a str]) -> Self {
        let mut set = Self::new();
        if let Some((first, rest)) = path.split_first() {
            set.push(Element::field(first), rest.is_empty(), Self::of_path(rest));
        }
        set
    }

    /// Creates an empty set with capacity for this number of nodes.
    pub(super) fn with_capacity(nodes: usize) -> Self {
        Self {
            nodes: Vec::with_capacity(nodes),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    pub(super) fn nodes(&self) -> &[Node<'a>] {
        &self.nodes
    }

    /// Returns the number of nodes for fields, which precede the other nodes.
    pub(super) fn fields(&self) -> usize {
        let is_field = |node: &Node<'_>| matches!(node.element, Element::Field(_));
        match self.nodes.last() {
            Some(last) if is_field(last) => self.nodes.len(),
            _ => self.nodes.partition_point(is_field),
        }
    }

    pub(super) fn into_nodes(self) -> Vec<Node<'a>> {
        self.nodes
    }

    /// Appends a node, unless it would be empty. The caller must keep the order, or call [`FieldSet::sort`] at the end.
    pub(super) fn push(&mut self, element: Element<'a>, member: bool, children: FieldSet<'a>) {
        if member || !children.is_empty() {
            self.nodes.push(Node {
                element,
                member,
                children,
            });
        }
    }

    /// Restores the order after [`FieldSet::push`]; equal elements become one node.
    pub(super) fn sort(&mut self) {
        if self.nodes.is_sorted_by(|a, b| a.element < b.element) {
            return;
        }
        self.nodes.sort_by(|a, b| a.element.cmp(&b.element));
        let nodes = std::mem::take(&mut self.nodes);
        for node in nodes {
            match self.nodes.last_mut() {
                Some(last) if last.element == node.element => {
                    last.member |= node.member;
                    last.children = std::mem::take(&mut last.children).union(node.children);
                }
                _ => self.nodes.push(node),
            }
        }
    }

    fn find(&self, element: &Element<'_>) -> Option<&Node<'a>> {
        let found = self.nodes.binary_search_by(|node| node.element.cmp(element));
        found.ok().map(|i| &self.nodes[i])
    }

    /// Returns `true` if this path itself, given as elements, is in the set.
    pub(super) fn has(&self, path: &[Element<'_>]) -> bool {
        match path {
            [] => false,
            [last] => self.find(last).is_some_and(|node| node.member),
            [first, rest @ ..] => self.find(first).is_some_and(|node| node.children.has(rest)),
        }
    }

    /// Returns the node of an element.
    pub(super) fn child(&self, element: &Element<'_>) -> Option<&Node<'a>> {
        self.find(element)
    }

    /// Returns the union of both sets.
    pub(super) fn union(self, other: FieldSet<'a>) -> Self {
        if self.is_empty() {
            return other;
        }
        if other.is_empty() {
            return self;
        }
        let mut out = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        let mut left = self.nodes.into_iter().peekable();
        let mut right = other.nodes.into_iter().peekable();
        while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
            match a.element.cmp(&b.element) {
                Ordering::Less => out.extend(left.next()),
                Ordering::Greater => out.extend(right.next()),
                Ordering::Equal => {
                    if let (Some(a), Some(b)) = (left.next(), right.next()) {
                        out.push(Node {
                            element: a.element,
                            member: a.member || b.member,
                            children: a.children.union(b.children),
                        });
                    }
                }
            }
        }
        out.extend(left);
        out.extend(right);
        Self { nodes: out }
    }

    /// Returns the union of many sets. The sets are combined in pairs, because the cost of a union depends on its
    /// larger set.
    pub(super) fn union_of(mut sets: Vec<FieldSet<'a>>) -> Self {
        while sets.len() > 1 {
            let mut rest = sets.into_iter();
            let mut pairs = Vec::with_capacity(rest.len().div_ceil(2));
            while let Some(one) = rest.next() {
                pairs.push(match rest.next() {
                    Some(other) => one.union(other),
                    None => one,
                });
            }
            sets = pairs;
        }
        sets.pop().unwrap_or_default()
    }

    /// Returns the difference: paths that are not in `other`.
    pub(super) fn difference(self, other: &FieldSet<'_>) -> Self {
        self.without(other, false)
    }

    /// Returns the paths that are neither in `other` nor below one of its paths.
    pub(super) fn recursive_difference(self, other: &FieldSet<'_>) -> Self {
        self.without(other, true)
    }

    fn without(mut self, other: &FieldSet<'_>, below: bool) -> Self {
        if other.is_empty() {
            return self;
        }
        self.nodes.retain_mut(|node| {
            if let Some(minus) = other.find(&node.element) {
                if minus.member && below {
                    return false;
                }
                node.member &= !minus.member;
                node.children = std::mem::take(&mut node.children).without(&minus.children, below);
            }
            !node.is_empty()
        });
        self
    }

    /// Returns the intersection of both sets.
    pub(super) fn intersection(mut self, other: &FieldSet<'_>) -> Self {
        self.nodes.retain_mut(|node| match other.find(&node.element) {
            Some(both) => {
                node.member &= both.member;
                node.children = std::mem::take(&mut node.children).intersection(&both.children);
                !node.is_empty()
            }
            None => false,
        });
        self
    }

    /// Returns `true` if all paths of this set are in `other`.
    pub(super) fn is_subset(&self, other: &FieldSet<'_>) -> bool {
        self.nodes.iter().all(|node| {
            other
                .find(&node.element)
                .is_some_and(|it| (it.member || !node.member) && node.children.is_subset(&it.children))
        })
    }

    /// Returns the printed paths, in the order of conflict errors: the members of a level before deeper members.
    pub(super) fn paths(&self) -> Vec<String> {
        let mut out = Vec::new();
        self.collect_paths("", &mut out);
        out
    }

    fn collect_paths(&self, prefix: &str, out: &mut Vec<String>) {
        out.extend(
            self.nodes
                .iter()
                .filter(|node| node.member)
                .map(|node| format!("{prefix}{}", node.element)),
        );
        for node in self.nodes.iter().filter(|node| !node.children.is_empty()) {
            let mut path = prefix.to_owned();
            let _ = write!(path, "{}", node.element);
            node.children.collect_paths(&path, out);
        }
    }

    /// Returns the set without borrowed data.
    pub(super) fn into_owned(self) -> FieldSet<'static> {
        let nodes = self.nodes.into_iter().map(|node| Node {
            element: node.element.into_owned(),
            member: node.member,
            children: node.children.into_owned(),
        });
        FieldSet { nodes: nodes.collect() }
    }
}
