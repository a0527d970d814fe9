//! Secrets of commands: they come from files and the environment. Command lines are shown to all users of a machine.

use std::convert::Infallible;

use anyhow::bail;
use stoker_flight::Secret;

/// In place of a secret on the command line, of which nothing is kept.
#[derive(Clone, Copy, Debug)]
pub struct OnCommandLine;

impl OnCommandLine {
    /// Forgets a value.
    #[expect(clippy::unnecessary_wraps, reason = "the form of a parser of values")]
    pub fn parse(_: &str) -> Result<Self, Infallible> {
        Ok(Self)
    }

    /// An error that says where the secret belongs, if it is on the command line.
    pub fn refuse(given: Option<Self>, option: &str, file_option: &str, variable: &str) -> anyhow::Result<()> {
        if given.is_some() {
            bail!(
                "{option} would show the secret to all users of this machine, in the list of processes: put it into a file and give \
                 {file_option} FILE, or set {variable}"
            );
        }
        Ok(())
    }
}

/// A secret of the environment.
pub fn secret_in_environment(variable: &str) -> Option<Secret> {
    std::env::var(variable).ok().map(Secret::from)
}
