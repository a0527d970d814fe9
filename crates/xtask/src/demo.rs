//! `cargo xtask demo`: the whole path on real images, in front of your eyes.

mod exactly_once;
mod figures;
mod lake;
mod s3;
mod serve;
mod train;
mod work_dir;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

use crate::build::{self, Targets};
use crate::command;
use crate::narrate::{Narrator, seconds};
use crate::python::Python;
use crate::workspace::Workspace;

use figures::Figures;
use work_dir::WorkDir;

/// What every part of the demo uses.
struct Stage<'a> {
    workspace: &'a Workspace,
    python: Python,
    work_dir: WorkDir,
}

impl Stage<'_> {
    /// A `stoker` command of the release build.
    fn stoker(&self) -> Command {
        Command::new(self.workspace.stoker_bin())
    }

    /// A command that runs one of the Python examples.
    fn example(&self, name: &str) -> Command {
        let mut command = self.python.command();
        command.arg(self.workspace.python_dir().join("examples").join(name));
        command
    }

    /// The folder of the exported images.
    fn images(&self) -> PathBuf {
        self.work_dir.path("digits")
    }

    /// The local lake.
    fn lake(&self) -> PathBuf {
        self.work_dir.path("lake")
    }
}

/// Runs the part that `args` names, or both.
pub fn run(workspace: &Workspace, narrator: &mut Narrator, args: &[String]) -> Result<()> {
    let (with_training, with_s3) = match args {
        [] => (true, true),
        [part] if part == "local" => (true, false),
        [part] if part == "s3" => (false, true),
        _ => bail!("the parts of the demo are `local` and `s3`; without a name, both run"),
    };
    let python = build::set_up(workspace, narrator, Targets::Programs)?;
    let stage = Stage { workspace, python, work_dir: WorkDir::create()? };
    let ready = narrator.elapsed();
    let mut figures = Figures::default();
    lake::build(&stage, narrator, &mut figures)?;
    if with_training {
        train_and_search(&stage, narrator, &mut figures)?;
    }
    if with_s3 {
        s3::stream_from_s3(&stage, narrator, &mut figures)?;
    }
    narrator.step("What the demo has shown", |narrator| {
        narrator.say(&figures);
        narrator.say(format!("\n{} after the build", seconds(narrator.elapsed() - ready)));
        Ok(())
    })?;
    stage.work_dir.remove()
}

/// Trains and searches through a server on the local lake.
fn train_and_search(stage: &Stage<'_>, narrator: &mut Narrator, figures: &mut Figures) -> Result<()> {
    lake::add_embeddings(stage, narrator)?;
    let server = narrator
        .step("Serve the lake", |narrator| serve::start(stage, narrator, "server", stage.lake().as_os_str(), &[]))?;
    train::train(stage, narrator, &server, figures)?;
    exactly_once::check(stage, narrator, figures)?;
    narrator.step("Evaluate on the held-out rows", |_| {
        let mut evaluate = stage.example("evaluate_digits.py");
        evaluate.args(["--lake", &server.url, "--checkpoint"]).arg(stage.work_dir.path("checkpoint.pt"));
        figures
            .listen(evaluate.args(["--accuracy-min", "0.95"]), "the network should reach 95 % on rows it has not seen")
    })?;
    narrator.step("A hybrid sample query: filter, vector search, stream", |_| {
        let mut search = stage.example("hybrid_search.py");
        figures.listen(search.args(["search", "--lake", &server.url]), "the rows differ from a brute-force search")
    })?;
    narrator.step("Stop the server (SIGTERM)", |_| server.job.stop())
}

/// Shows a command of the demo, runs it, and fails with `advice` when it fails.
fn show(command: &mut Command, advice: &str) -> Result<()> {
    command::run(command, advice)
}
