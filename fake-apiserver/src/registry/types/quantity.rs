//! Parses, compares and formats quantities such as `100m`, `1.5Gi` or `2e3`, like kube-apiserver (rule T7).

use std::cmp::Ordering;
use std::fmt;

const FORMAT_WRONG: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const NUMERIC_WRONG: &str = "unable to parse numeric part of quantity";
const SUFFIX_WRONG: &str = "unable to parse quantity's suffix";

/// Exponent of the highest precision. More precise amounts are rounded away from zero.
const FINEST: i32 = -9;
/// Maximum absolute value of amounts in binary notation. Larger amounts are capped.
const LARGEST_BINARY: i128 = i64::MAX as i128;

/// Notation of an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Notation {
    /// Decimal suffixes, as in `1k` or `500m`.
    Decimal,
    /// Decimal exponents, as in `1e3`.
    Exponent,
    /// Binary suffixes, as in `1Ki`.
    Binary,
}

/// An amount: `mantissa` times ten to the power of `exponent`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantity {
    mantissa: i128,
    exponent: i32,
    notation: Notation,
}

impl Quantity {
    /// Parses a quantity. Fails with kube-apiserver's message.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        parse(text).map(|(quantity, _)| quantity)
    }

    /// Creates a quantity from an integer.
    pub(crate) fn from_int(value: i64) -> Self {
        Self {
            mantissa: i128::from(value),
            exponent: 0,
            notation: Notation::Decimal,
        }
    }

    /// Returns the amount in whole units, rounded away from zero.
    pub(crate) fn value(&self) -> i64 {
        self.scaled(0)
    }

    /// Returns the amount in thousandths, rounded away from zero.
    pub(crate) fn milli_value(&self) -> i64 {
        self.scaled(-3)
    }

    /// Returns the sign: -1, 0 or 1.
    pub(crate) fn signum(&self) -> i32 {
        match self.mantissa.cmp(&0) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }
    }

    /// Returns the sum, in the notation of the first operand that is not zero. If the sum overflows, returns the
    /// operand with the larger absolute value.
    #[must_use]
    pub(crate) fn add(&self, other: &Self) -> Self {
        if self.mantissa == 0 {
            return *other;
        }
        let exponent = self.exponent.min(other.exponent);
        let sum = match (self.raised(exponent), other.raised(exponent)) {
            (Some(a), Some(b)) => a.checked_add(b),
            _ => None,
        };
        match sum {
            Some(mantissa) => Self {
                mantissa,
                exponent,
                notation: self.notation,
            },
            None if self.absolute() >= other.absolute() => *self,
            None => *other,
        }
    }

    fn absolute(&self) -> Self {
        Self {
            mantissa: self.mantissa.saturating_abs(),
            ..*self
        }
    }

    /// Returns this quantity minus `other`.
    #[must_use]
    pub(crate) fn subtract(&self, other: &Self) -> Self {
        self.add(&Self {
            mantissa: other.mantissa.saturating_neg(),
            ..*other
        })
    }

    /// Returns the amount, rounded away from zero to thousandths, as kube-apiserver stores quantities of resources.
    #[must_use]
    pub(crate) fn rounded_to_milli(self) -> Self {
        self.rounded(-3)
    }

    fn rounded(self, finest: i32) -> Self {
        if self.exponent >= finest {
            return self;
        }
        Self {
            mantissa: divide_away(self.mantissa, finest.abs_diff(self.exponent)),
            exponent: finest,
            notation: self.notation,
        }
    }

    fn scaled(&self, exponent: i32) -> i64 {
        let value = if self.exponent < exponent {
            Some(divide_away(self.mantissa, exponent.abs_diff(self.exponent)))
        } else {
            self.raised(exponent)
        };
        let bound = if self.mantissa < 0 { i64::MIN } else { i64::MAX };
        value.and_then(|it| i64::try_from(it).ok()).unwrap_or(bound)
    }

    /// Returns the mantissa for an exponent that is not higher than the current exponent; `None` if the mantissa
    /// overflows.
    fn raised(&self, exponent: i32) -> Option<i128> {
        if self.mantissa == 0 {
            return Some(0);
        }
        let factor = 10_i128.checked_pow(self.exponent.abs_diff(exponent))?;
        self.mantissa.checked_mul(factor)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        let signs = self.mantissa.signum().cmp(&other.mantissa.signum());
        if signs != Ordering::Equal || self.mantissa == 0 {
            return signs;
        }
        let exponent = self.exponent.min(other.exponent);
        match (self.raised(exponent), other.raised(exponent)) {
            (Some(a), Some(b)) => a.cmp(&b),
            // Only the mantissa of the amount with the higher exponent can overflow. This amount then has the larger
            // absolute value.
            (None, _) => self.mantissa.cmp(&0),
            (_, None) => 0.cmp(&self.mantissa),
        }
    }
}

impl fmt::Display for Quantity {
    /// Formats the quantity in canonical form: as an integer with the largest possible suffix.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.mantissa == 0 {
            return f.write_str("0");
        }
        if self.notation == Notation::Binary
            && let Some(units) = self.whole_units()
            && units.unsigned_abs() >= 1024
        {
            let (mut units, mut step) = (units, 0);
            while units % 1024 == 0 && step < 6 {
                units /= 1024;
                step += 1;
            }
            return write!(f, "{units}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][step]);
        }
        let (mut mantissa, mut exponent) = (self.mantissa, self.exponent);
        while mantissa % 10 == 0 {
            mantissa /= 10;
            exponent += 1;
        }
        let mut highest = i32::MAX;
        if self.notation != Notation::Exponent {
            highest = 18;
        }
        let wanted = (exponent - exponent.rem_euclid(3)).min(highest);
        write!(f, "{mantissa}")?;
        for _ in wanted..exponent {
            f.write_str("0")?;
        }
        match (self.notation, wanted) {
            (_, 0) => Ok(()),
            (Notation::Exponent, _) => write!(f, "e{wanted}"),
            (Notation::Decimal | Notation::Binary, _) => {
                let at = (wanted - FINEST) / 3;
                let suffixes = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
                f.write_str(usize::try_from(at).ok().and_then(|at| suffixes.get(at)).unwrap_or(&""))
            }
        }
    }
}

#[cfg(feature = "cel")]
impl Quantity {
    /// Returns the amount as an integer, if it is one and fits into 64 bits.
    pub(crate) fn as_int(&self) -> Option<i64> {
        self.whole_units().and_then(|it| i64::try_from(it).ok())
    }

    /// Returns the amount as an approximate float.
    #[expect(clippy::cast_precision_loss, reason = "the result is approximate")]
    pub(crate) fn approximate(&self) -> f64 {
        // Parsing the power of ten returns the nearest float, as in Go's table.
        let power: f64 = format!("1e{}", self.exponent).parse().unwrap_or(f64::INFINITY);
        self.mantissa as f64 * power
    }
}

impl Quantity {
    /// Returns the amount as an integer, if it is one.
    fn whole_units(&self) -> Option<i128> {
        if self.exponent >= 0 {
            return self.raised(0);
        }
        let factor = 10_i128.checked_pow(self.exponent.unsigned_abs())?;
        (self.mantissa % factor == 0).then(|| self.mantissa / factor)
    }
}

/// Returns the string to which kube-apiserver normalises a quantity; `None` if it is unchanged. Amounts of resources
/// (`to_milli`) are rounded to thousandths, away from zero.
pub(crate) fn canonical(text: &str, to_milli: bool) -> Result<Option<String>, &'static str> {
    let (mut quantity, mut keep) = parse(text)?;
    if to_milli && quantity.exponent < -3 {
        quantity = quantity.rounded_to_milli();
        keep = false;
    }
    if keep {
        return Ok(None);
    }
    let spelled = quantity.to_string();
    Ok((spelled != text).then_some(spelled))
}

/// Divides by a power of ten, rounding away from zero.
fn divide_away(value: i128, power: u32) -> i128 {
    let Some(factor) = 10_i128.checked_pow(power) else {
        return value.signum();
    };
    let (quotient, rest) = (value / factor, value % factor);
    quotient + rest.signum()
}

/// The parts of a quantity string.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

fn split(text: &str) -> Result<Parts<'_>, &'static str> {
    let negative = text.starts_with('-');
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let rest = unsigned.trim_start_matches('0');
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let (mut whole, mut rest) = rest.split_at(digits(rest));
    if whole.is_empty() {
        whole = "0";
    }
    let mut fraction = "";
    if let Some(after) = rest.strip_prefix('.') {
        (fraction, rest) = after.split_at(digits(after));
    }
    let suffix = rest;
    let rest = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let rest = rest.strip_prefix(['+', '-']).unwrap_or(rest);
    if rest.bytes().all(|byte| byte.is_ascii_digit()) {
        Ok(Parts {
            negative,
            whole,
            fraction,
            suffix,
        })
    } else {
        Err(FORMAT_WRONG)
    }
}

/// Parses a suffix. Returns the notation, and the exponent of ten, or of two for binary notation.
fn read_suffix(suffix: &str) -> Option<(Notation, i32)> {
    let decimal = |exponent| Some((Notation::Decimal, exponent));
    let binary = |exponent| Some((Notation::Binary, exponent));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let number = suffix.strip_prefix(['e', 'E'])?;
            // Exponents with an absolute value above 1000 are refused, because they cause overflows.
            let exponent: i32 = number.parse().ok().filter(|it| (-1000..=1000).contains(it))?;
            Some((Notation::Exponent, exponent))
        }
    }
}

/// Parses a quantity. Also returns `true` if kube-apiserver does not normalise the string.
fn parse(text: &str) -> Result<(Quantity, bool), &'static str> {
    if text.is_empty() {
        return Err(FORMAT_WRONG);
    }
    let parts = split(text)?;
    let (notation, power) = read_suffix(parts.suffix).ok_or(SUFFIX_WRONG)?;
    let mut mantissa: i128 = 0;
    for digit in parts.whole.bytes().chain(parts.fraction.bytes()) {
        mantissa = mantissa
            .checked_mul(10)
            .and_then(|it| it.checked_add(i128::from(digit - b'0')))
            .ok_or(NUMERIC_WRONG)?;
    }
    let digits = parts.whole.len() + parts.fraction.len();
    let fraction = i32::try_from(parts.fraction.len()).map_err(|_| NUMERIC_WRONG)?;
    let keep = keeps_spelling(&parts, mantissa, notation, power, digits);
    let mut exponent = -fraction;
    if notation == Notation::Binary {
        mantissa = mantissa.checked_mul(1 << power).unwrap_or(i128::MAX);
        let units = Quantity {
            mantissa,
            exponent,
            notation,
        };
        let largest = Quantity {
            mantissa: LARGEST_BINARY,
            exponent: 0,
            notation,
        };
        if units > largest {
            (mantissa, exponent) = (LARGEST_BINARY, 0);
        }
    } else {
        exponent += power;
    }
    if parts.negative {
        mantissa = -mantissa;
    }
    let quantity = Quantity {
        mantissa,
        exponent,
        notation,
    };
    Ok((quantity.rounded(FINEST), keep))
}

/// Returns `true` if kube-apiserver does not normalise the string of a quantity. For example, `1.500` is unchanged, but
/// `0.5` and `1000m` are normalised.
fn keeps_spelling(parts: &Parts<'_>, mantissa: i128, notation: Notation, power: i32, digits: usize) -> bool {
    let digits = i32::try_from(digits).unwrap_or(i32::MAX);
    let fraction = parts.fraction.len();
    match notation {
        Notation::Binary => fraction == 0 && 14 - digits - power * 3 / 10 >= 0 && mantissa & 7 != 0,
        Notation::Decimal | Notation::Exponent => {
            let exponent = i32::try_from(fraction).map_or(i32::MIN, |fraction| power.saturating_sub(fraction));
            let ends_in_zeros = mantissa % 1000 == 0 && digits >= 3;
            digits <= 18 && exponent >= FINEST && exponent % 3 == 0 && !ends_in_zeros && !parts.whole.starts_with('0')
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("1000m", "1")]
    #[case("0.5", "500m")]
    #[case("1.500", "1.500")]
    #[case("1024Mi", "1Gi")]
    #[case("1.5Gi", "1536Mi")]
    #[case("1.1i", "unable to parse quantity's suffix")]
    #[case("0Mi", "0")]
    #[case("100", "100")]
    #[case("1000", "1k")]
    #[case("1000000000", "1G")]
    #[case("123456", "123456")]
    #[case("1e3", "1e3")]
    #[case("2000e3", "2e6")]
    #[case("0.0001m", "100n")]
    #[case("0.1n", "1n")]
    #[case("-0.5", "-500m")]
    #[case("512Mi", "512Mi")]
    #[case("9Ei", "9223372036854775807")]
    #[case("lots", FORMAT_WRONG)]
    #[case("", FORMAT_WRONG)]
    #[case("1 Gi", FORMAT_WRONG)]
    #[case("1GiB", FORMAT_WRONG)]
    #[case(".5Ki", "512")]
    fn t7_quantities_are_converted_to_canonical_form(#[case] text: &str, #[case] expected: &str) {
        let spelled = match canonical(text, false) {
            Ok(spelled) => spelled.unwrap_or_else(|| text.to_owned()),
            Err(error) => error.to_owned(),
        };
        assert_eq!(spelled, expected);
    }

    #[test]
    fn t7_resource_quantities_are_rounded_up_to_thousandths() {
        assert_eq!(canonical("0.0001", true), Ok(Some("1m".to_owned())));
        assert_eq!(canonical("100u", true), Ok(Some("1m".to_owned())));
        assert_eq!(canonical("100m", true), Ok(None));
    }

    #[test]
    fn quantities_in_different_notations_are_compared_and_added() {
        let read = |text| Quantity::parse(text).expect("the quantity is valid");
        assert_eq!(read("1Gi"), read("1073741824"));
        assert!(read("1500m") > read("1"));
        assert!(read("1e300") > read("1Gi"));
        assert!(read("-1e300") < read("1n"));
        assert_eq!(read("1500m").value(), 2);
        assert_eq!(read("1Ki").milli_value(), 1_024_000);
        assert_eq!(read("1e300").value(), i64::MAX);
        assert_eq!(read("1Gi").add(&read("512Mi")).to_string(), "1536Mi");
        assert_eq!(read("5").add(&read("1e300")), read("1e300"));
        assert_eq!(read("-1e300").add(&read("5")), read("-1e300"));
    }
}
