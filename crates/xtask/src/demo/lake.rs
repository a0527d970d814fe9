//! Builds tables from image files, and queries them.

use std::ffi::OsStr;
use std::time::Instant;

use anyhow::{Context, Result};

use super::{Figures, Stage, show};
use crate::narrate::Narrator;

/// Queries that show what a lake can answer.
const QUERIES: [&str; 3] = [
    "SELECT split, count(*) AS num_rows, count(DISTINCT label) AS num_labels FROM digits GROUP BY split ORDER BY split",
    "SELECT label, label_name, count(*) AS num_rows FROM digits WHERE split = 'train' GROUP BY label, label_name ORDER BY label",
    "SELECT path, label FROM digits AT (VERSION => 1) WHERE label = 7 AND split = 'test' ORDER BY path LIMIT 3",
];

/// Exports the digits as image files, ingests them, and runs the queries.
pub fn build(stage: &Stage<'_>, narrator: &mut Narrator, figures: &mut Figures) -> Result<()> {
    narrator.step("Write real images: scikit-learn's handwritten digits as PNG files in class folders", |_| {
        let mut export = stage.example("export_digits.py");
        show(export.arg(stage.images()), "scikit-learn and Pillow are in the virtual environment")
    })?;
    narrator.step("Ingest them into a table of a new lake", |_| {
        let begun = Instant::now();
        ingest(stage, stage.lake().as_os_str(), &[])?;
        figures.add("ingest of 1,797 PNG files", format!("{:.2} s", begun.elapsed().as_secs_f64()));
        Ok(())
    })?;
    narrator.step("Ask with SQL", |_| {
        for query in QUERIES {
            let advice = "the query should work on the table that was just ingested";
            show(stage.stoker().args(["sql", query, "--lake"]).arg(stage.lake()), advice)?;
        }
        Ok(())
    })?;
    narrator.step("See how the columns are stored", |_| {
        show(stage.stoker().args(["describe", "digits", "--lake"]).arg(stage.lake()), "see its message above")
    })
}

/// Ingests the exported images into the table `digits` of a lake.
pub fn ingest(stage: &Stage<'_>, lake: &OsStr, settings: &[(&str, String)]) -> Result<()> {
    let mut ingest = stage.stoker();
    ingest
        .args(["ingest", "imagefolder"])
        .arg(stage.images())
        .args(["digits", "--channels", "gray", "--lake"])
        .arg(lake);
    show(ingest.envs(settings.iter().cloned()), "see its message above")
}

/// Writes a second table with an embedding of each image, from Python.
pub fn add_embeddings(stage: &Stage<'_>, narrator: &mut Narrator) -> Result<()> {
    narrator.step("Add a table with embeddings, from Python", |_| {
        let lake = stage.lake();
        let lake = lake.to_str().context("the folder for temporary files has a name in UTF-8")?;
        show(stage.example("hybrid_search.py").args(["create", "--lake", lake]), "see its message above")
    })
}
