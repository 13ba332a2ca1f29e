//! Parses lists of a Job's indexes, such as `1,3-5`. Follows `validateIndexesFormat` and `parseIndexInterval` of
//! `pkg/apis/batch/validation`.

/// Returns the number of indexes in a list such as `1,3-5`, which must be ascending and below `completions`.
pub(super) fn count_indexes(indexes: &str, completions: i64) -> Result<i64, String> {
    let mut total = 0;
    let mut last: Option<i64> = None;
    for interval in indexes.split(',').filter(|_| !indexes.is_empty()) {
        let (first, end) = parse_interval(interval, completions)?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

fn parse_interval(interval: &str, completions: i64) -> Result<(i64, i64), String> {
    let ends: Vec<&str> = interval.split('-').collect();
    if ends.len() > 2 {
        return Err(format!(
            "the fragment {interval:?} violates the requirement that an index interval can have at most two parts \
             separated by '-'"
        ));
    }
    let index = |text: &str| match text.parse::<i64>() {
        Err(_) => Err(format!("cannot convert string to integer for index: {text:?}")),
        Ok(index) if index >= completions => Err(format!("too large index: {text:?}")),
        Ok(index) => Ok(index),
    };
    let first = index(ends[0])?;
    let end = match ends.get(1) {
        None => return Ok((first, first)),
        Some(end) => index(end)?,
    };
    if first >= end {
        return Err(format!("non-increasing order, previous: {first}, current: {end}"));
    }
    Ok((first, end))
}

/// Returns the first index that is in both lists. Invalid intervals are skipped.
pub(super) fn common_index(one: &str, other: &str, completions: i64) -> Option<i64> {
    let intervals = |list: &str| -> Vec<(i64, i64)> {
        let parsed = list.split(',').map(|it| parse_interval(it, completions));
        parsed.filter_map(Result::ok).collect()
    };
    let (one, other) = (intervals(one), intervals(other));
    let (mut left, mut right) = (one.iter().peekable(), other.iter().peekable());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        if a.0 <= b.1 && b.0 <= a.1 {
            return Some(a.0.max(b.0));
        }
        if a.0 <= b.0 {
            left.next();
        } else {
            right.next();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{common_index, count_indexes};
    use rstest::rstest;

    #[rstest]
    #[case("", Ok(0))]
    #[case("0,2-4", Ok(4))]
    #[case("3,1", Err("non-increasing order, previous: 3, current: 1"))]
    #[case("9", Err("too large index: \"9\""))]
    #[case("x", Err("cannot convert string to integer for index: \"x\""))]
    fn completion_index_lists_are_validated(#[case] list: &str, #[case] expected: Result<i64, &str>) {
        assert_eq!(count_indexes(list, 5), expected.map_err(str::to_owned));
    }

    #[test]
    fn overlapping_index_lists_are_detected() {
        assert_eq!(common_index("0-2,4", "3,4", 5), Some(4));
        assert_eq!(common_index("0-2", "3-4", 5), None);
    }
}
