//! Quantities of resources as numbers, to compare and add them.

/// A quantity in billionths; rounded away from zero where it is finer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Amount(i128);

const UNIT: i128 = 1_000_000_000;

/// Beyond this a quantity is cut, as the server does.
const MAX: i128 = (i64::MAX as i128) * UNIT;

impl Amount {
    /// Nothing.
    pub(crate) const ZERO: Amount = Amount(0);

    /// Reads a quantity such as `100m`, `1Gi` or `2e3`; `None` where it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (negative, unsigned) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let end = unsigned
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(unsigned.len());
        let (digits, suffix) = unsigned.split_at(end);
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let amount = match binary_power(suffix) {
            Some(shift) => scaled(whole, fraction, 1i128.checked_shl(shift)?, 0),
            None => scaled(whole, fraction, 1, decimal_power(suffix)?),
        };
        Some(Self(if negative { -amount } else { amount }))
    }

    /// Whether it counts whole things.
    pub(crate) fn is_whole(self) -> bool {
        self.0 % UNIT == 0
    }

    /// Whether it is some number of times `unit`.
    pub(crate) fn is_multiple_of(self, unit: Self) -> bool {
        unit.0 != 0 && self.0 % unit.0 == 0
    }

    /// The amount in the canonical form, with powers of two where `other` is written with them.
    pub(crate) fn written_like(self, other: &str) -> String {
        const BINARY: [(&str, i128); 6] = [
            ("Ei", 1 << 60),
            ("Pi", 1 << 50),
            ("Ti", 1 << 40),
            ("Gi", 1 << 30),
            ("Mi", 1 << 20),
            ("Ki", 1 << 10),
        ];
        const DECIMAL: [(&str, i128); 9] = [
            ("E", 1_000_000_000_000_000_000 * UNIT),
            ("P", 1_000_000_000_000_000 * UNIT),
            ("T", 1_000_000_000_000 * UNIT),
            ("G", 1_000_000_000 * UNIT),
            ("M", 1_000_000 * UNIT),
            ("k", 1_000 * UNIT),
            ("", UNIT),
            ("m", 1_000_000),
            ("u", 1_000),
        ];
        if self.0 == 0 {
            return "0".to_owned();
        }
        if other.ends_with('i') && self.0 % UNIT == 0 {
            let whole = self.0 / UNIT;
            let unit = BINARY.iter().find(|(_, size)| whole % size == 0);
            return match unit {
                Some((suffix, size)) => format!("{}{suffix}", whole / size),
                None => whole.to_string(),
            };
        }
        match DECIMAL.iter().find(|(_, size)| self.0 % size == 0) {
            Some((suffix, size)) => format!("{}{suffix}", self.0 / size),
            None => format!("{}n", self.0),
        }
    }

    /// The sum, cut at the most a quantity holds.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0).clamp(-MAX, MAX))
    }
}

fn binary_power(suffix: &str) -> Option<u32> {
    Some(match suffix {
        "Ki" => 10,
        "Mi" => 20,
        "Gi" => 30,
        "Ti" => 40,
        "Pi" => 50,
        "Ei" => 60,
        _ => return None,
    })
}

fn decimal_power(suffix: &str) -> Option<i32> {
    Some(match suffix {
        "n" => -9,
        "u" => -6,
        "m" => -3,
        "" => 0,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        other => other.strip_prefix(['e', 'E'])?.parse().ok()?,
    })
}

/// `whole.fraction × factor × 10^power` in billionths, rounded up.
fn scaled(whole: &str, fraction: &str, factor: i128, power: i32) -> i128 {
    let mut value: i128 = 0;
    let mut exponent = power.saturating_add(9);
    let mut cut = false;
    for digit in whole.bytes().chain(fraction.bytes()) {
        match value.checked_mul(10).filter(|it| *it < MAX / 1024) {
            Some(shifted) => value = shifted + i128::from(digit - b'0'),
            None => {
                exponent = exponent.saturating_add(1);
                cut |= digit != b'0';
            }
        }
    }
    exponent = exponent.saturating_sub(i32::try_from(fraction.len()).unwrap_or(i32::MAX));
    let Some(mut value) = value.checked_mul(factor) else {
        return MAX;
    };
    while exponent > 0 && value != 0 {
        match value.checked_mul(10).filter(|it| *it <= MAX) {
            Some(larger) => value = larger,
            None => return MAX,
        }
        exponent -= 1;
    }
    while exponent < 0 && value != 0 {
        cut |= value % 10 != 0;
        value /= 10;
        exponent += 1;
    }
    (value + i128::from(cut)).min(MAX)
}

#[cfg(test)]
mod tests {
    use super::Amount;
    use rstest::rstest;

    #[rstest]
    #[case("1", "1000m")]
    #[case("1Gi", "1024Mi")]
    #[case("2e3", "2k")]
    #[case("0.5", "500m")]
    #[case("-1", "-1000m")]
    fn equal(#[case] one: &str, #[case] other: &str) {
        assert_eq!(Amount::parse(one).expect(one), Amount::parse(other).expect(other));
    }

    #[rstest]
    #[case("")]
    #[case("x")]
    #[case("-")]
    #[case("1.2.3")]
    #[case("1KiB")]
    fn no_quantity(#[case] text: &str) {
        assert_eq!(Amount::parse(text), None);
    }

    #[test]
    fn endless_digits_and_powers_are_cut() {
        let long = "9".repeat(1000);
        assert_eq!(Amount::parse(&long), Amount::parse("1e2000000000"));
        assert!(Amount::parse("1e-2000000000").expect("a quantity") >= Amount::ZERO);
    }
}
