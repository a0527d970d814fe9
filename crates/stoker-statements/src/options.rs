//! The options of a statement: `WITH (name = value, …)`.

use std::ops::RangeInclusive;

use stoker_dialect::OptionValue;

use crate::{Error, Result};

/// The options of a statement, all of which are known.
pub(crate) struct Options<'a> {
    /// What has the options, such as `index kind ivf_pq`.
    owner: String,
    given: &'a [(String, OptionValue)],
}

impl<'a> Options<'a> {
    /// Checks that all options are known.
    pub(crate) fn try_new(owner: String, known: &[&str], given: &'a [(String, OptionValue)]) -> Result<Self> {
        let unknown = given.iter().find(|(name, _)| !known.contains(&name.as_str()));
        match unknown {
            None => Ok(Self { owner, given }),
            Some((name, _)) if known.is_empty() => {
                Err(Error::refused(format!("option {name:?} is unknown"), format!("{owner} has no options")))
            }
            Some((name, _)) => Err(Error::refused(
                format!("option {name:?} is unknown"),
                format!("the options of {owner} are: {}", known.join(", ")),
            )),
        }
    }

    /// Returns an option that is a whole number.
    pub(crate) fn number(&self, name: &str, range: RangeInclusive<usize>) -> Result<Option<usize>> {
        let Some(value) = self.find(name) else { return Ok(None) };
        let number = match value {
            OptionValue::Number(digits) => digits.parse::<usize>().ok().filter(|number| range.contains(number)),
            OptionValue::Text(_) | OptionValue::Bool(_) => None,
        };
        match number {
            Some(number) => Ok(Some(number)),
            None => {
                let rule = format!("a whole number from {} to {}", range.start(), range.end());
                Err(self.unfit(name, value, &rule))
            }
        }
    }

    /// Returns an option that is true or false.
    pub(crate) fn switch(&self, name: &str) -> Result<Option<bool>> {
        match self.find(name) {
            None => Ok(None),
            Some(OptionValue::Bool(value)) => Ok(Some(*value)),
            Some(value) => Err(self.unfit(name, value, "TRUE or FALSE")),
        }
    }

    /// Returns an option that is a text.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&'a str>> {
        match self.find(name) {
            None => Ok(None),
            Some(OptionValue::Text(text)) => Ok(Some(text)),
            Some(value) => Err(self.unfit(name, value, "a text in single quotes")),
        }
    }

    fn find(&self, name: &str) -> Option<&'a OptionValue> {
        self.given.iter().find(|(given, _)| given == name).map(|(_, value)| value)
    }

    fn unfit(&self, name: &str, value: &OptionValue, rule: &str) -> Error {
        Error::refused(self.owner.as_str(), format!("{name} is {value}; it must be {rule}"))
    }
}
