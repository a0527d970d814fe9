//! `stoker sql` without a query: a shell on a terminal, and statements one after the other from other inputs.

mod command;
mod input;
mod terminal;

use std::env;
use std::io::{BufRead, BufWriter, IsTerminal, Read, Write, stdin};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, bail};
use futures::FutureExt;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::fail::report;
use crate::output::output;
use crate::shell::command::{HELP, ShellCommand};
use crate::shell::input::{Action, Input, STATEMENT_BYTES_MAX};
use crate::shell::terminal::{Line, Terminal};
use crate::sql::Statements;

/// The prompt before a statement.
const PROMPT: &str = "stoker> ";
/// The prompt before further lines of a statement.
const CONTINUED: &str = "   ...> ";

/// A shell over a lake.
pub struct Shell<'a> {
    statements: Statements<'a>,
    is_timed: bool,
}

/// Whether the shell goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    GoOn,
    Leave,
}

impl<'a> Shell<'a> {
    /// Makes a shell that runs these statements.
    pub fn new(statements: Statements<'a>) -> Self {
        Self { statements, is_timed: false }
    }

    /// Runs the statements of standard input until it ends. On a terminal it prompts for them, and goes on after errors;
    /// else the first error is returned.
    ///
    /// # Errors
    /// The input cannot be read, the error of a statement where there is no terminal, and an unknown command there.
    pub async fn run(mut self) -> anyhow::Result<()> {
        match stdin().is_terminal() {
            true => self.prompt().await,
            false => self.read(stdin().lock()).await,
        }
    }

    /// Runs the statements of a text.
    async fn read(&mut self, mut text: impl BufRead) -> anyhow::Result<()> {
        let (mut input, mut line) = (Input::default(), String::new());
        loop {
            line.clear();
            // A longer line is refused as a statement that is too long, before all of it is in memory.
            let read = text.by_ref().take(STATEMENT_BYTES_MAX).read_line(&mut line);
            if read.context("cannot read statements from standard input")? == 0 {
                break;
            }
            for action in input.add(line.trim_end_matches(['\r', '\n']))? {
                if self.act(action).await? == Next::Leave {
                    return Ok(());
                }
            }
        }
        match input.finish() {
            Some(sql) => self.execute(&sql).await,
            None => Ok(()),
        }
    }

    /// Prompts for statements until the user leaves.
    async fn prompt(&mut self) -> anyhow::Result<()> {
        let mut interrupts = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
        let mut terminal = Terminal::start(history_file())?;
        let mut input = Input::default();
        writeln!(output(), "stoker {}; \\? shows the commands", env!("CARGO_PKG_VERSION"))?;
        loop {
            let prompt = if input.has_begun() { CONTINUED } else { PROMPT };
            let line = tokio::select! {
                line = terminal.read(prompt) => line?,
                // A terminal without editing sends a signal, and drops what was typed. Its line is still being read.
                _ = interrupts.recv() => {
                    input.clear();
                    let mut out = output();
                    write!(out, "\n{PROMPT}")?;
                    out.flush()?;
                    continue;
                }
            };
            let actions = match line {
                Line::Text(text) => input.add(&text),
                Line::Interrupted => {
                    input.clear();
                    continue;
                }
                Line::End => return Ok(()),
            };
            let actions = actions.unwrap_or_else(|error| {
                report(&error);
                Vec::new()
            });
            for action in actions {
                if let Action::Run(sql) = &action {
                    terminal.remember(format!("{};", sql.trim()));
                }
                match self.act_unless_interrupted(action, &mut interrupts).await {
                    Ok(Next::GoOn) => {}
                    Ok(Next::Leave) => return Ok(()),
                    Err(error) => {
                        report(&error);
                        // What follows in the line may have relied on the statement.
                        break;
                    }
                }
            }
        }
    }

    /// Does what a line asks for. Ctrl-C drops it, which stops a statement, also on a server.
    async fn act_unless_interrupted(&mut self, action: Action, interrupts: &mut Signal) -> anyhow::Result<Next> {
        // Signals of the time before belong to other statements.
        while let Some(Some(())) = interrupts.recv().now_or_never() {}
        tokio::select! {
            biased;
            _ = interrupts.recv() => bail!("the statement was stopped"),
            done = self.act(action) => done,
        }
    }

    async fn act(&mut self, action: Action) -> anyhow::Result<Next> {
        let command = match action {
            Action::Run(sql) => {
                self.execute(&sql).await?;
                return Ok(Next::GoOn);
            }
            Action::Obey(command) => command,
        };
        match command {
            ShellCommand::Quit => return Ok(Next::Leave),
            ShellCommand::Statement(sql) => self.execute(&sql).await?,
            ShellCommand::Timing => {
                self.is_timed = !self.is_timed;
                writeln!(output(), "timing is {}", if self.is_timed { "on" } else { "off" })?;
            }
            ShellCommand::Help => writeln!(output(), "{HELP}")?,
            ShellCommand::Unknown(line) => bail!("unknown command {line}; \\? lists the commands"),
        }
        Ok(Next::GoOn)
    }

    /// Runs a statement and prints its rows, and its time if that is wanted.
    async fn execute(&self, sql: &str) -> anyhow::Result<()> {
        let began = Instant::now();
        let mut out = BufWriter::new(output());
        self.statements.run(sql, &[], &mut out).await?;
        if self.is_timed {
            writeln!(out, "{:.3} s", began.elapsed().as_secs_f64())?;
        }
        Ok(out.flush()?)
    }
}

/// Returns the file of the history: `STOKER_HISTORY`, else a hidden file of the user. An empty variable means none.
fn history_file() -> Option<PathBuf> {
    match env::var_os("STOKER_HISTORY") {
        Some(path) => Some(PathBuf::from(path)).filter(|path| !path.as_os_str().is_empty()),
        None => env::home_dir().map(|home| home.join(".stoker_history")),
    }
}
