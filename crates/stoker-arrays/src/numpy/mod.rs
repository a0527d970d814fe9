//! NumPy's files of arrays: `.npy` and `.npz`.
//!
//! The first dimension of an array is the rows, and the rest of it the shape of each row. An array of records has one
//! column for each field.
//!
//! - *One `.npy` file* has one column, whose name is that of the file without its ending.
//! - *Several `.npy` files without numbers*, such as `x.npy` and `y.npy`, are columns side by side, which must have the same
//!   number of rows.
//! - *Several `.npy` files with numbers*, such as `x_000.npy`, `x_001.npy`, `y_000.npy` and `y_001.npy`: those of one name
//!   are a column, and the rows of each number come after those of the number before. Each name must have the same
//!   numbers. A number is decimal digits at the end of the name, behind `_` or `-`; a name of digits only is a column with
//!   the name of its folder, or `array`.
//! - *Several files of which only some have numbers* could be either, and are refused.
//! - *`.npz` files* have one column for each member, side by side. The rows of several files come after one another, by
//!   their names.
//!
//! A single `.npy` file with a number follows the rule of numbered files, so that a second one has the same column.
//!
//! Arrays are read in C's order, batch by batch. Of an array in Fortran's order, a batch costs one read for each element of
//! a row, at most 1,024; arrays of at most 64 MiB, and 256 MiB of a `.npz` file, are read into memory first. Other ones are
//! refused.

mod layout;
mod npz;
mod open;
mod parts;

use std::sync::Arc;

use self::parts::NumpyParts;
use crate::Result;
use crate::array_rows::ArrayFiles;
use stoker_files::file_names::{ending, is_hidden};
use stoker_files::refuse_media;
use stoker_files::{FileFormat, Folder, FormatOptions, RowFiles};

/// The format of `.npy` and `.npz` files.
#[derive(Clone, Copy, Debug)]
pub struct NumpyFormat;

impl FileFormat for NumpyFormat {
    fn name(&self) -> &'static str {
        "numpy"
    }

    fn recognise(&self, folder: &dyn Folder) -> Option<Vec<String>> {
        let is_array = |name: &&str| !is_hidden(name) && matches!(ending(name).as_deref(), Some("npy" | "npz"));
        let names = folder.files().iter().map(|file| file.name.as_str()).filter(is_array);
        let names: Vec<String> = names.map(str::to_string).collect();
        (!names.is_empty()).then_some(names)
    }

    fn plan(&self, folder: Arc<dyn Folder>, files: Vec<String>, options: &FormatOptions) -> Result<Box<dyn RowFiles>> {
        refuse_media(options)?;
        Ok(Box::new(ArrayFiles::try_new(NumpyParts::try_new(folder, files)?)?))
    }
}
