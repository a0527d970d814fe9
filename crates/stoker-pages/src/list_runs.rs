//! Finds which numbers of which chunks belong to the wanted rows.

use std::ops::Range;

use crate::chunk_parts::{ChunkBytes, ChunkParts};
use crate::error::Result;
use crate::levels::{ChunkLevels, LevelRun};
use crate::{BadPage, ListPage, PageRows};

/// Successive numbers of a row.
pub(crate) struct NumberRun {
    /// The number of the row among all that are read.
    pub row: usize,
    /// The index of the first number in its chunk.
    pub start: usize,
    pub length: usize,
}

/// A chunk of which numbers are wanted.
pub(crate) struct OpenChunk<'a> {
    pub page: &'a ListPage,
    pub chunk: ChunkBytes<'a>,
    pub parts: ChunkParts,
    pub num_items: usize,
    /// The range of its runs among those of all chunks.
    pub runs: Range<usize>,
}

/// The runs of numbers of all rows.
pub(crate) struct Runs<'a> {
    pub chunks: Vec<OpenChunk<'a>>,
    pub runs: Vec<NumberRun>,
    pub rows: FoundRows,
}

/// The rows of which runs were found.
#[derive(Default)]
pub(crate) struct FoundRows {
    /// The number of numbers of each row.
    pub lengths: Vec<usize>,
    /// The rows that are null.
    pub nulls: Vec<usize>,
    levels: ChunkLevels,
}

impl<'a> Runs<'a> {
    /// Finds the runs of the rows of pages.
    pub fn of(pages: &'a [PageRows]) -> Result<Self> {
        let num_chunks = pages.iter().flat_map(|page| &page.read).map(|read| read.numbers.len()).sum();
        let mut rows = FoundRows::for_pages(pages);
        // Memory that grows step by step takes new memory of the system for each step, in each thread.
        let mut chunks = Vec::with_capacity(num_chunks);
        let mut runs = Vec::with_capacity(rows.lengths.capacity() + num_chunks);
        for page in pages {
            rows.add(page, &mut runs, |chunk, _| {
                chunks.push(chunk);
                Ok(())
            })?;
        }
        Ok(Self { chunks, runs, rows })
    }
}

impl FoundRows {
    /// Makes room for the rows of pages.
    pub fn for_pages(pages: &[PageRows]) -> Self {
        let num_rows = pages.iter().map(|page| page.rows.len()).sum();
        Self { lengths: Vec::with_capacity(num_rows), ..Self::default() }
    }

    /// Adds the rows of a page. Their runs are added to `runs`. `found` gets each chunk that has some of them, and `runs`.
    pub fn add<'a>(
        &mut self,
        page_rows: &'a PageRows,
        runs: &mut Vec<NumberRun>,
        mut found: impl FnMut(OpenChunk<'a>, &mut Vec<NumberRun>) -> Result<()>,
    ) -> Result<()> {
        let PageRows { page, chunks, rows, read } = page_rows;
        let mut open = OpenRows { left: rows, next_index: self.lengths.len(), next_row: 0, row: None };
        self.lengths.resize(self.lengths.len() + rows.len(), 0);
        let mut before: Option<usize> = None;
        for (number, chunk) in read.iter().flat_map(|read| read.chunks(chunks)) {
            let chunk = chunk.ok_or_else(|| BadPage::new(format!("chunk {number} of a page was not read")))?;
            let parts = ChunkParts::parse(page, chunk.all())?;
            page.levels.read(chunk, &parts, &mut self.levels)?;
            let is_continued = number.checked_sub(1).is_some_and(|last| before == Some(last) && chunks.continues(last));
            before = Some(number);
            open.begin_chunk(chunks.rows_before(number), is_continued);
            let first_run = runs.len();
            let items = self.add_chunk(&mut open, page.levels.has_nulls, runs);
            let (num_items, num_rows) = (chunks.num_items(number), chunks.rows_before(number + 1));
            if items as u64 != num_items || open.next_row != num_rows {
                let begun = open.next_row;
                return Err(BadPage::new(format!(
                    "chunk {number} of a page has {items} numbers and ends at row {begun}, not {num_items} and {num_rows}"
                )));
            }
            let of_chunk = first_run..runs.len();
            if !of_chunk.is_empty() {
                found(OpenChunk { page, chunk, parts, num_items: items, runs: of_chunk }, runs)?;
            }
        }
        match open.left.first() {
            None => Ok(()),
            Some(row) => Err(BadPage::new(format!("no chunk of the page has its row {row}"))),
        }
    }

    /// Adds the runs of a chunk, whose levels were read. Returns the number of its numbers.
    fn add_chunk(&mut self, open: &mut OpenRows<'_>, has_nulls: bool, runs: &mut Vec<NumberRun>) -> usize {
        let Self { lengths, nulls, levels } = self;
        let mut items = 0;
        // The first number that is in no run yet.
        let mut start = 0;
        let mut end_run = |row: Option<usize>, items: usize| {
            if let Some(row) = row
                && items > start
            {
                runs.push(NumberRun { row, start, length: items - start });
                lengths[row] += items - start;
            }
            start = items;
        };
        let mut def = levels.def.iter().copied();
        let no_def = LevelRun { level: 0, length: usize::MAX };
        let mut of_def = def.next().unwrap_or(no_def);
        for of_rep in &levels.rep {
            let mut left = of_rep.length;
            while left > 0 {
                if of_def.length == 0 {
                    of_def = def.next().unwrap_or(no_def);
                    continue;
                }
                let both = left.min(of_def.length);
                left -= both;
                of_def.length -= both;
                let is_number = of_def.level == 0;
                if of_rep.level == 0 {
                    items += if is_number { both } else { 0 };
                    continue;
                }
                for _ in 0..both {
                    end_run(open.row, items);
                    open.begin_row();
                    if is_number {
                        items += 1;
                    } else if has_nulls && of_def.level == 1 {
                        nulls.extend(open.row);
                    }
                }
            }
        }
        end_run(open.row, items);
        items
    }
}

/// The wanted rows of a page that are not read yet.
struct OpenRows<'a> {
    /// The rows, counted from the first one of the page.
    left: &'a [u64],
    /// The number of the first of them among all rows that are read.
    next_index: usize,
    /// The next row of the page that begins.
    next_row: u64,
    /// The number of the row that has begun, if it is wanted.
    row: Option<usize>,
}

impl OpenRows<'_> {
    fn begin_chunk(&mut self, next_row: u64, is_continued: bool) {
        self.next_row = next_row;
        if !is_continued {
            self.row = None;
        }
    }

    fn begin_row(&mut self) {
        self.row = match self.left {
            [first, rest @ ..] if *first == self.next_row => {
                self.left = rest;
                self.next_index += 1;
                Some(self.next_index - 1)
            }
            _ => None,
        };
        self.next_row += 1;
    }
}
