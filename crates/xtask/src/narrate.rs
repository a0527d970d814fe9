//! Prints the progress of a task: numbered steps, what each step does, and when.

use std::fmt::Display;
use std::time::{Duration, Instant};

use anyhow::Result;

/// Prints a task's steps, with the time since the start of the task.
pub struct Narrator {
    task: String,
    started: Instant,
    num_steps: usize,
}

impl Narrator {
    /// Makes a narrator for `task`, which starts now.
    pub fn new(task: &str) -> Self {
        Self { task: task.to_owned(), started: Instant::now(), num_steps: 0 }
    }

    /// Prints the title of a step, runs the step, and prints how long it took or that it failed.
    pub fn step<T>(&mut self, title: impl Display, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.num_steps += 1;
        println!("\n[{}] {}.{} {title}", self.clock(), self.task, self.num_steps);
        let begun = Instant::now();
        let result = work(self);
        let verdict = if result.is_ok() { "done" } else { "FAILED" };
        println!("[{}] {verdict} after {}", self.clock(), seconds(begun.elapsed()));
        result
    }

    /// Prints a text about the running step.
    pub fn say(&self, text: impl Display) {
        for line in text.to_string().lines() {
            println!("          {line}");
        }
    }

    /// Returns the time since the start of the task.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn clock(&self) -> String {
        let total = self.started.elapsed().as_secs();
        format!("{:3}:{:02}", total / 60, total % 60)
    }
}

/// Formats a duration for people: `0.4 s`, `12.3 s`, `4 min 07 s`.
pub fn seconds(duration: Duration) -> String {
    let total = duration.as_secs();
    if total >= 120 {
        format!("{} min {:02} s", total / 60, total % 60)
    } else {
        format!("{:.1} s", duration.as_secs_f64())
    }
}
