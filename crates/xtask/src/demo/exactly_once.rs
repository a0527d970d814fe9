//! Checks that every row was delivered exactly once per epoch.

use anyhow::Result;

use super::{Figures, Stage};
use crate::narrate::Narrator;

/// Checks the ledgers that the ranks of both runs wrote.
pub fn check(stage: &Stage<'_>, narrator: &mut Narrator, figures: &mut Figures) -> Result<()> {
    narrator.step("Check that every row was seen exactly once in every epoch", |narrator| {
        narrator.say(
            "each rank wrote the ids of its rows down; what the killed job did after its checkpoint does not count",
        );
        let mut check = stage.example("check_ledger.py");
        check.arg(stage.work_dir.path("ledger")).arg("--lake").arg(stage.lake());
        check.args(["--query", "SELECT count(*) AS num_rows FROM digits WHERE split = 'train'"]);
        figures.listen(&mut check, "rows were lost or repeated")
    })
}
