//! `Templates`: names with parts that a controller generates, such as times and random suffixes, learned from two runs
//! without faults.

use std::collections::{BTreeMap, BTreeSet};

/// Characters between the words of a name.
const BREAKS: [char; 4] = ['-', '.', '_', ':'];

/// Templates of object names, by the resource and namespace of the objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Templates {
    all: BTreeSet<(String, Template)>,
}

/// A name with generated words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Template {
    words: Vec<Word>,
    /// The characters between the words.
    breaks: String,
}

/// A word in a name template: literal or generated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Word {
    Literal(String),
    /// A generated word: its character set, and its minimum and maximum length.
    Generated(Letters, usize, usize),
}

/// Character set of a generated word. Each variant includes the previous ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Letters {
    Decimal,
    Hexadecimal,
    Any,
}

impl Templates {
    /// Derives templates from the keys of objects that exist in only one of two runs: `configmaps shop/backup-0443`.
    pub(crate) fn between<'a>(one: impl Iterator<Item = &'a str>, other: impl Iterator<Item = &'a str>) -> Self {
        let by_stem = |keys: &mut dyn Iterator<Item = &'a str>| {
            let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
            for (stem, name) in keys.filter_map(split) {
                names.entry(stem).or_default().push(name);
            }
            names
        };
        let (mut one, mut other) = (one, other);
        let others = by_stem(&mut other);
        let mut templates = Self::default();
        for (stem, names) in by_stem(&mut one) {
            for name in names {
                let found = others.get(stem).into_iter().flatten();
                let found = found.filter_map(|it| Template::of(name, it));
                if let Some(template) = found.max_by_key(Template::literals) {
                    templates.all.insert((stem.to_owned(), template));
                }
            }
        }
        templates
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Adds the templates of `other`.
    pub(crate) fn add(&mut self, other: Self) {
        self.all.extend(other.all);
    }

    /// Returns the key with `*` instead of the generated words of its name; `None` if no template matches.
    pub(crate) fn key(&self, key: &str) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        let (stem, name) = split(key)?;
        let mut templates = self.all.iter().filter(|(of, _)| of == stem);
        let starred = templates.find_map(|(_, template)| template.starred(name))?;
        Some(format!("{stem}{starred}"))
    }
}

/// Splits a key at the beginning of the name: `configmaps shop/web` → `configmaps shop/` and `web`.
fn split(key: &str) -> Option<(&str, &str)> {
    Some(key.split_at(key.rfind('/')? + 1))
}

impl Template {
    /// Returns the template of two names that differ in some words; `None` if the names are equal, have different
    /// separators, or do not have a word in common.
    fn of(one: &str, other: &str) -> Option<Self> {
        let breaks = breaks(one);
        if breaks != self::breaks(other) || one == other {
            return None;
        }
        let words = one
            .split(BREAKS)
            .zip(other.split(BREAKS))
            .map(|(one, other)| match one == other {
                true => Word::Literal(one.to_owned()),
                false => {
                    let letters = Letters::of(one).max(Letters::of(other));
                    let (least, most) = (one.len().min(other.len()), one.len().max(other.len()));
                    Word::Generated(letters, least.div_ceil(2), most * 2)
                }
            });
        let mut words: Vec<Word> = words.collect();
        // A decimal word next to a hexadecimal one is probably a part of a uid that consists of digits by chance.
        if words
            .iter()
            .any(|it| matches!(it, Word::Generated(Letters::Hexadecimal, ..)))
        {
            for word in &mut words {
                if let Word::Generated(letters @ Letters::Decimal, ..) = word {
                    *letters = Letters::Hexadecimal;
                }
            }
        }
        let template = Self { words, breaks };
        (template.literals() > 0).then_some(template)
    }

    /// Returns the number of words that are the same in all names of the template. The `*` of a name that the server
    /// generates does not count.
    fn literals(&self) -> usize {
        let is_literal = |it: &&Word| matches!(it, Word::Literal(text) if !text.is_empty() && text != "*");
        self.words.iter().filter(is_literal).count()
    }

    /// Returns a name with `*` instead of its generated words; `None` if the name does not match the template.
    fn starred(&self, name: &str) -> Option<String> {
        let found: Vec<&str> = name.split(BREAKS).collect();
        if found.len() != self.words.len() || breaks(name) != self.breaks {
            return None;
        }
        let mut breaks = self.breaks.chars();
        let mut starred = String::new();
        for (found, word) in found.into_iter().zip(&self.words) {
            starred.push_str(match word {
                Word::Literal(text) if text == found => found,
                Word::Generated(letters, least, most)
                    if Letters::of(found) <= *letters && (*least..=*most).contains(&found.len()) =>
                {
                    "*"
                }
                Word::Literal(_) | Word::Generated(..) => return None,
            });
            starred.extend(breaks.next());
        }
        Some(starred)
    }
}

/// Returns the characters between the words of a name.
fn breaks(name: &str) -> String {
    name.chars().filter(|it| BREAKS.contains(it)).collect()
}

impl Letters {
    fn of(word: &str) -> Self {
        let are_all = |is: fn(&u8) -> bool| word.bytes().all(|it| is(&it));
        if are_all(u8::is_ascii_digit) {
            Self::Decimal
        } else if are_all(u8::is_ascii_hexdigit) {
            Self::Hexadecimal
        } else {
            Self::Any
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::Templates;

    #[rstest]
    #[case::another_suffix("web-1f2e3d", Some("web-*"))]
    #[case::suffix_that_is_not_hexadecimal("web-config", None)]
    #[case::additional_word("web-1f2e3d-x", None)]
    #[case::another_prefix("db-1f2e3d", None)]
    #[case::suffix_that_is_too_short("web-1", None)]
    fn only_generated_names_of_other_runs_match_the_template(#[case] name: &str, #[case] starred: Option<&str>) {
        let (one, other) = ("pods shop/web-a1b2c3", "pods shop/web-d4e5f6");
        let templates = Templates::between([one].into_iter(), [other].into_iter());
        let expected = starred.map(|it| format!("pods shop/{it}"));
        assert_eq!(templates.key(&format!("pods shop/{name}")), expected);
        assert_eq!(templates.key(&format!("pods other/{name}")), None);
    }

    #[rstest]
    #[case::names("web", "blog")]
    #[case::prefixes_of_generated_names("web-*", "blog-*")]
    fn unrelated_names_have_no_template(#[case] one: &str, #[case] other: &str) {
        let [one, other] = [one, other].map(|it| format!("pods shop/{it}"));
        assert!(Templates::between([&*one].into_iter(), [&*other].into_iter()).is_empty());
    }

    #[test]
    fn words_of_a_uid_that_are_digits_by_chance_match_any_uid() {
        let (one, other) = ("disks /disk-bcc9005d-2884", "disks /disk-1c34507d-1172");
        let templates = Templates::between([one].into_iter(), [other].into_iter());
        let key = templates.key("disks /disk-1534507d-f47e");
        assert_eq!(key.as_deref(), Some("disks /disk-*-*"));
    }

    /// The Pods of an owner with a random name, such as the RayCluster of a RayJob.
    #[test]
    fn generated_names_with_a_random_prefix_have_a_template() {
        let (one, other) = ("pods shop/web-a1b2c-head-*", "pods shop/web-d4e5f-head-*");
        let templates = Templates::between([one].into_iter(), [other].into_iter());
        let key = templates.key("pods shop/web-77777-head-*");
        assert_eq!(key.as_deref(), Some("pods shop/web-*-head-*"));
    }
}
