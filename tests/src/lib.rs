//! Support for tests that drive the real binary.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context, Result, ensure};

/// Returns the path of the `stoker` binary: `STOKER_BIN`, or the binary next to the tests.
pub fn stoker_bin() -> PathBuf {
    if let Some(path) = std::env::var_os("STOKER_BIN") {
        return path.into();
    }
    let test = std::env::current_exe().unwrap_or_default();
    test.ancestors().nth(2).unwrap_or(Path::new("")).join("stoker")
}

/// Returns a command that runs the real binary, without the caller's settings.
pub fn stoker(args: &[&str]) -> Command {
    let mut command = Command::new(stoker_bin());
    command.args(args);
    for variable in ["STOKER_LAKE", "STOKER_SERVER", "STOKER_CONFIG", "STOKER_TOKEN", "STOKER_TICKET_KEY"] {
        command.env_remove(variable);
    }
    command
}

/// Runs the binary and returns its standard output.
pub fn run(args: &[&str]) -> Result<String> {
    let output = stoker(args).output().with_context(|| format!("cannot start {}", stoker_bin().display()))?;
    ensure!(output.status.success(), "stoker {args:?} failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Runs the binary, which must fail without a panic, and returns its standard error.
pub fn run_failing(args: &[&str]) -> Result<String> {
    let Output { status, stdout, stderr } = stoker(args).output()?;
    let text = String::from_utf8_lossy(&stderr).into_owned();
    ensure!(!status.success(), "stoker {args:?} should fail and printed {}", String::from_utf8_lossy(&stdout));
    ensure!(status.code() == Some(1) && !text.contains("panicked"), "stoker {args:?} ended with {status}: {text}");
    Ok(text)
}

/// A real server process, which is killed when this value is dropped.
pub struct Server {
    process: Child,
    /// The URL at which the process listens: `grpc://host:port`, or the URL of another service.
    pub address: String,
}

impl Server {
    /// Starts a server and waits until it listens. `listen` may name port 0.
    pub fn start(lake: &str, listen: &str, more: &[&str]) -> Result<Self> {
        let mut args = vec!["serve", "--lake", lake, "--listen", listen];
        args.extend_from_slice(more);
        Self::spawn(&args)
    }

    /// Starts a server command, and waits until it prints the URL at which it listens.
    pub fn spawn(args: &[&str]) -> Result<Self> {
        let mut process = stoker(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let output = process.stdout.take().context("the server has no output")?;
        let mut line = String::new();
        let read = BufReader::new(output).read_line(&mut line);
        let mut server = Self { process, address: String::new() };
        read?;
        let address = line.trim().strip_prefix("listening on ");
        server.address = address.with_context(|| format!("the server said {line:?}"))?.to_string();
        Ok(server)
    }

    /// Kills the process with SIGKILL, and waits for it.
    pub fn kill(mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// Sends SIGTERM and returns the exit status.
    pub fn terminate(mut self) -> Result<std::process::ExitStatus> {
        let killed = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status()?;
        ensure!(killed.success(), "kill failed");
        Ok(self.process.wait()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Writes `DIR/<class>/<n>.png` for three classes: small images whose pixels are a function of class and number.
pub fn image_folder(dir: &Path, per_class: u8) -> Result<()> {
    for class in 0..3u8 {
        let folder = dir.join(format!("class{class}"));
        std::fs::create_dir_all(&folder)?;
        for number in 0..per_class {
            #[expect(clippy::cast_possible_truncation, reason = "the image has 24 × 20 pixels")]
            let pixel = |x: u32, y: u32| image::Rgb([class * 50, number, (x * 8 + y) as u8]);
            let picture = image::RgbImage::from_fn(24, 20, pixel);
            picture.save(folder.join(format!("{number:03}.png")))?;
        }
    }
    Ok(())
}
