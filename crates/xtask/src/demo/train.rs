//! Runs a training job on several ranks, kills all of its processes once, and resumes it on another number of ranks.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::serve::Server;
use super::{Figures, Stage};
use crate::command;
use crate::job::Job;
use crate::narrate::Narrator;

const EPOCHS: &str = "12";
/// Divisible by 2 and by 3, so that all ranks have equally many rows of a batch before and after the resume.
const GLOBAL_BATCH: &str = "48";
const CHECKPOINT_EVERY: &str = "7";
const SEED: &str = "7";

/// The job is killed after rank 0 has printed this step, which lies in the middle of an epoch and between two
/// checkpoints.
const KILLED_AFTER: &str = "epoch 4 step 11 ";

/// How long a job may take.
const JOB_LIMIT: Duration = Duration::from_secs(240);

/// Trains on two ranks, kills them, and resumes on three.
pub fn train(stage: &Stage<'_>, narrator: &mut Narrator, server: &Server, figures: &mut Figures) -> Result<()> {
    narrator.step("Train on 2 ranks (DDP, gloo) and kill them in the middle of an epoch (SIGKILL)", |narrator| {
        let mut ranks = start(stage, narrator, server, "run0", 2)?;
        let line = ranks[0].wait_for(&format!("`{KILLED_AFTER}`"), JOB_LIMIT, |line| {
            line.starts_with(KILLED_AFTER).then(|| line.to_owned())
        })?;
        for rank in &mut ranks {
            rank.kill()?;
        }
        narrator.say(format!("rank 0 said `{line}`; both ranks are killed"));
        Ok(())
    })?;
    narrator.step("Resume from the last checkpoint on 3 ranks and finish", |narrator| {
        let mut ranks = start(stage, narrator, server, "run1", 3)?;
        wait_for_all(&mut ranks)?;
        let lines = ranks[0].finish(Duration::ZERO)?;
        for line in lines.iter().filter(|line| line.contains("resumed") || line.contains("accuracy")) {
            narrator.say(line);
        }
        figures.take(&lines);
        Ok(())
    })
}

/// Starts the processes of a job as `torchrun` would, except that they use a file for their rendezvous, which needs no
/// port.
fn start(stage: &Stage<'_>, narrator: &Narrator, server: &Server, run: &str, world_size: usize) -> Result<Vec<Job>> {
    let rendezvous = stage.work_dir.path(format!("{run}.rendezvous"));
    let mut ranks = Vec::new();
    for rank in 0..world_size {
        let mut command = stage.example("train_digits.py");
        command.args(["--lake", &server.url, "--run", run, "--checkpoint"]).arg(stage.work_dir.path("checkpoint.pt"));
        command.arg("--ledger").arg(stage.work_dir.path("ledger"));
        command.args(["--epochs", EPOCHS, "--global-batch-size", GLOBAL_BATCH, "--seed", SEED]);
        command.args(["--checkpoint-every", CHECKPOINT_EVERY, "--rendezvous"]);
        command.arg(format!("file://{}", rendezvous.display()));
        if rank == 0 {
            narrator.say(format!("$ {}   × {world_size}", command::shown(&command)));
        }
        command.env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string());
        command.env("WORLD_SIZE", world_size.to_string()).env("OMP_NUM_THREADS", "1");
        command.env("GLOO_SOCKET_IFNAME", if cfg!(target_os = "macos") { "lo0" } else { "lo" });
        let log = stage.work_dir.path(format!("{run}-rank{rank}.log"));
        ranks.push(Job::start(&format!("rank {rank} of {run}"), &mut command, &log)?);
    }
    Ok(ranks)
}

/// Waits until all ranks have exited with success; fails as soon as a rank fails.
fn wait_for_all(ranks: &mut [Job]) -> Result<()> {
    let deadline = Instant::now() + JOB_LIMIT;
    let mut running: Vec<usize> = (0..ranks.len()).collect();
    while !running.is_empty() {
        if Instant::now() > deadline {
            bail!("the training job has not ended within {} s", JOB_LIMIT.as_secs());
        }
        let mut still = Vec::new();
        for index in running {
            if !ranks[index].ended_with_success(Duration::from_millis(20))? {
                still.push(index);
            }
        }
        running = still;
    }
    Ok(())
}
