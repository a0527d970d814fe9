//! Secrets of commands. They are read from files and the environment, because a machine shows command lines to all of
//! its users.

use std::convert::Infallible;

use anyhow::bail;
use stoker::Secret;

/// Stands for a secret that was given on the command line; the secret itself is not kept.
#[derive(Clone, Copy, Debug)]
pub struct OnCommandLine;

impl OnCommandLine {
    /// Discards the value.
    #[expect(clippy::unnecessary_wraps, reason = "the form of a parser of values")]
    pub fn parse(_: &str) -> Result<Self, Infallible> {
        Ok(Self)
    }

    /// Returns an error that says where to put the secret, if the secret was given on the command line.
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

/// Returns a secret from the environment.
pub fn secret_in_environment(variable: &str) -> Option<Secret> {
    std::env::var(variable).ok().map(Secret::from)
}
