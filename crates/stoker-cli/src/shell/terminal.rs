//! Lines from a terminal, with editing and a history.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use anyhow::Context;
use rustyline::error::ReadlineError;
use rustyline::{Config, DefaultEditor};
use tokio::sync::mpsc::{Receiver as LineReceiver, Sender as LineSender, channel};

/// The most statements of the history, in memory and in its file.
const HISTORY_MAX: usize = 10_000;

/// What was typed.
#[derive(Debug)]
pub enum Line {
    /// A line, without its end.
    Text(String),
    /// Ctrl-C.
    Interrupted,
    /// Ctrl-D, or the terminal is gone.
    End,
}

/// What the thread that reads is asked for.
enum Request {
    /// A line, after this prompt.
    Read(&'static str),
    /// To add a statement to the history.
    Remember(String),
}

/// A terminal. A thread reads from it, because reading blocks, and so that a statement can be stopped while it runs.
pub struct Terminal {
    requests: mpsc::Sender<Request>,
    lines: LineReceiver<anyhow::Result<Line>>,
    /// Whether a line was requested that has not come yet.
    is_reading: bool,
}

impl Terminal {
    /// Starts the thread. The history is kept in a file, if there is a path for it.
    ///
    /// # Errors
    /// The system has no thread.
    pub fn start(history: Option<PathBuf>) -> anyhow::Result<Self> {
        let (requests, asked) = mpsc::channel();
        let (answers, lines) = channel(1);
        let read = move || {
            if let Err(error) = answer(&asked, &answers, history.as_deref()) {
                answers.blocking_send(Err(error)).ok();
            }
        };
        thread::Builder::new().name("terminal".to_string()).spawn(read).context("cannot start a thread")?;
        Ok(Self { requests, lines, is_reading: false })
    }

    /// Reads a line. If the future is dropped, the next call goes on with the same line, behind the prompt that is shown.
    ///
    /// # Errors
    /// The terminal cannot be read.
    pub async fn read(&mut self, prompt: &'static str) -> anyhow::Result<Line> {
        if !self.is_reading {
            // Without a thread that reads, the channel of lines is closed, which is the end.
            self.requests.send(Request::Read(prompt)).ok();
            self.is_reading = true;
        }
        let line = self.lines.recv().await;
        self.is_reading = false;
        line.unwrap_or(Ok(Line::End))
    }

    /// Adds a statement to the history.
    pub fn remember(&self, statement: String) {
        self.requests.send(Request::Remember(statement)).ok();
    }
}

/// Answers requests until there is nobody left who makes any.
fn answer(
    requests: &Receiver<Request>,
    lines: &LineSender<anyhow::Result<Line>>,
    history: Option<&Path>,
) -> anyhow::Result<()> {
    let config = Config::builder().max_history_size(HISTORY_MAX)?.build();
    let mut editor = DefaultEditor::with_config(config).context("cannot use the terminal")?;
    if let Some(path) = history.filter(|path| path.exists())
        && let Err(error) = editor.load_history(path)
    {
        tracing::warn!("the history of statements cannot be read from {}: {error}", path.display());
    }
    for request in requests {
        let statement = match request {
            Request::Remember(statement) => statement,
            Request::Read(prompt) => {
                let line = match editor.readline(prompt) {
                    Ok(text) => Ok(Line::Text(text)),
                    Err(ReadlineError::Interrupted) => Ok(Line::Interrupted),
                    Err(ReadlineError::Eof) => Ok(Line::End),
                    Err(error) => Err(error).context("cannot read from the terminal"),
                };
                if lines.blocking_send(line).is_err() {
                    return Ok(());
                }
                continue;
            }
        };
        editor.add_history_entry(statement)?;
        if let Some(path) = history
            && let Err(error) = editor.append_history(path)
        {
            tracing::warn!("the history of statements cannot be written to {}: {error}", path.display());
        }
    }
    Ok(())
}
