//! Streams the same data from an S3-compatible server.

use std::ffi::OsStr;
use std::time::Duration;

use anyhow::{Result, bail};

use super::{Figures, Stage, lake, serve};
use crate::command;
use crate::job::Job;
use crate::narrate::Narrator;

/// The URI of the lake in the store.
const LAKE: &str = "s3://stoker-demo/lake";

/// How long the store may take until it listens.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Starts a store, ingests into it, streams from it in process and through a server, and compares the rows.
pub fn stream_from_s3(stage: &Stage<'_>, narrator: &mut Narrator, figures: &mut Figures) -> Result<()> {
    let (store, settings) = narrator.step("Start an S3-compatible store (moto) and make a bucket", |narrator| {
        let (store, endpoint) = start_store(stage, narrator)?;
        let settings = settings(&endpoint);
        let mut bucket = stage.python.command();
        bucket.args([
            "-c",
            "import boto3, sys; boto3.client('s3', endpoint_url=sys.argv[1]).create_bucket(Bucket='stoker-demo')",
        ]);
        super::show(bucket.arg(&endpoint).envs(settings.iter().cloned()), "the store should make a bucket")?;
        Ok((store, settings))
    })?;
    narrator.step("Ingest the same files into the store", |_| lake::ingest(stage, OsStr::new(LAKE), &settings))?;
    let reference = narrator.step("Stream the local lake, in process", |_| {
        digest(stage, figures, "local lake, in process", stage.lake().as_os_str(), &[])
    })?;
    let in_process = narrator.step("Stream the store, in process", |_| {
        digest(stage, figures, "S3, in process", OsStr::new(LAKE), &settings)
    })?;
    let served = narrator.step("Stream the store, through a server", |narrator| {
        let server = serve::start(stage, narrator, "s3-server", OsStr::new(LAKE), &settings)?;
        let served = digest(stage, figures, "S3, through `stoker serve`", OsStr::new(&server.url), &[])?;
        server.job.stop()?;
        Ok(served)
    })?;
    narrator.step("Compare what arrived", |narrator| {
        narrator.say(format!("local lake {reference}\nS3         {in_process}\nS3, served {served}"));
        if in_process != served {
            bail!("the batches from the store differ between the engine in process and the server");
        }
        if reference.rows != in_process.rows {
            bail!("the rows from the store differ from those of the local lake");
        }
        figures.add("S3 and local lake", "the same rows; in process and served: the same batches, byte by byte");
        Ok(())
    })?;
    drop(store);
    Ok(())
}

fn start_store(stage: &Stage<'_>, narrator: &Narrator) -> Result<(Job, String)> {
    let mut command = stage.python.command();
    command.arg(stage.workspace.root.join("crates/xtask/scripts/moto_store.py"));
    command.args(["-H", "127.0.0.1", "-p", "0"]).env("PYTHONUNBUFFERED", "1");
    narrator.say(format!("$ {}", command::shown(&command)));
    let job = Job::start("moto_server", &mut command, &stage.work_dir.path("store.log"))?;
    let endpoint = job.wait_for("its address", START_LIMIT, |line| {
        Some(line.split("Running on ").nth(1)?.split_whitespace().next()?.to_owned())
    })?;
    narrator.say(format!("{endpoint}, process {}", job.pid()));
    Ok((job, endpoint))
}

/// Returns the variables that programs need to reach the store, which accepts any keys.
fn settings(endpoint: &str) -> Vec<(&'static str, String)> {
    vec![
        ("AWS_ENDPOINT", endpoint.to_owned()),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_DEFAULT_REGION", "us-east-1".to_owned()),
        ("AWS_ACCESS_KEY_ID", "demo".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "demo-secret".to_owned()),
    ]
}

/// Digests of an epoch: of its batches in order, and of its rows in any order.
#[derive(PartialEq, Eq)]
struct Digests {
    batches: String,
    rows: String,
}

impl std::fmt::Display for Digests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rows {}, batches {}", self.rows, self.batches)
    }
}

fn digest(
    stage: &Stage<'_>,
    figures: &mut Figures,
    name: &str,
    lake: &OsStr,
    settings: &[(&str, String)],
) -> Result<Digests> {
    let mut command = stage.example("stream_digest.py");
    command.args(["--name", name, "--lake"]).arg(lake).envs(settings.iter().cloned());
    let (succeeded, lines) = command::run_and_listen(&mut command)?;
    figures.take(&lines);
    let value = |key: &str| lines.iter().find_map(|line| line.strip_prefix(key)).map(|value| value.trim().to_owned());
    match (succeeded, value("digest of batches:"), value("digest of rows:")) {
        (true, Some(batches), Some(rows)) => Ok(Digests { batches, rows }),
        _ => bail!("{name} could not be streamed; the reason is above"),
    }
}
