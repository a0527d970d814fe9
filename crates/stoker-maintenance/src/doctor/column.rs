//! Findings about the layout of a column.

use arrow_schema::{DataType, Field, Fields};
use stoker_columns::{HEAVY_ROW_BYTES, is_blob, is_compressed_tensor, is_encoded_image, kind_of};
use stoker_lake::{BLOB_REMEDY, ColumnSurvey, FragmentTally, Obstacle, Table};
use stoker_types::{ColumnLayout, Finding, Verdict};

use super::example;

/// The smallest average size of a piece, in bytes, that is no finding. A piece is a run of plain bytes that one
/// request can read. An object store takes about as long to answer a request as to send 1 MiB.
const PIECE_BYTES_MIN: u64 = 1 << 20;

/// A column in fewer pieces than this is read quickly in any case.
const PIECES_MIN: u64 = 32;

/// Lance's writer stores values of fewer bytes than this in blocks of several rows.
const ROW_BY_ROW_BYTES_MIN: u64 = 256;

const DECODER: &str = "its rows are read through Lance's decoder, which processes every byte several times, where \
                       plain bytes are read from the file directly into the batch";

/// Light columns with at least this many bytes per row are a finding.
const LIGHT_ROW_BYTES_MAX: u64 = 64 << 10;

const LIGHT: &str = "light columns share data files and are decoded by Lance; a query may read all of their rows, and \
                     of heavy columns only the rows that it returns";

/// Compressed tensors of fewer bytes than this are no finding, however many bytes they are compressed to.
const COMPRESSED_BYTES_MIN: u64 = 1 << 20;

pub(super) const REWRITE: &str =
    "write the table again through Stoker (older versions stay as they are, indexes have to be built anew)";

/// What to do about fragments that another program wrote, or that were written in small parts.
pub(super) const COMPACT: &str =
    "compact all fragments of the table through Stoker (older versions stay as they are, indexes follow)";

/// A column with its survey and its layout.
pub(super) struct ColumnCase<'a> {
    pub table: &'a Table,
    pub field: &'a Field,
    pub survey: &'a ColumnSurvey,
    pub layout: &'a ColumnLayout,
}

/// The parts of a finding that say what it costs and what to do.
struct Treatment {
    cost: String,
    remedy: String,
    example: Option<String>,
}

impl Treatment {
    fn new(cost: impl Into<String>, remedy: impl Into<String>, example: Option<String>) -> Self {
        Self { cost: cost.into(), remedy: remedy.into(), example }
    }
}

impl ColumnCase<'_> {
    /// All findings about the column, the most severe first.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = self.of_type().into_iter().collect();
        if !self.layout.heavy {
            return findings;
        }
        findings
            .extend(self.survey.obstacles.iter().map(|(obstacle, fragments)| self.of_obstacle(*obstacle, fragments)));
        findings.extend(self.of_compression());
        // A column that another finding tells to write again gets checksums and a file of its own by that.
        let stays = self.layout.dense || is_variable_width(self.field.data_type());
        if stays && self.survey.obstacles.is_empty() {
            findings.extend(self.of_checksums());
            findings.extend(self.of_pieces());
            findings.extend(self.of_neighbours());
        }
        findings
    }

    fn finding(&self, code: &str, what: impl Into<String>, treatment: Treatment) -> Finding {
        let Treatment { cost, remedy, example } = treatment;
        let column = Some(self.field.name().clone());
        Finding { column, code: code.into(), what: what.into(), cost, remedy, example }
    }

    fn names(&self) -> (&str, &str) {
        (self.table.name().as_str(), self.field.name().as_str())
    }

    /// The treatment of a finding for which writing the table again is the remedy.
    fn rewrite(&self, cost: impl Into<String>) -> Treatment {
        Treatment::new(cost, REWRITE, Some(example::rewrite_all(self.table.name().as_str())))
    }

    /// The treatment of a finding for which writing all fragments again is the remedy.
    fn compact(&self, cost: impl Into<String>) -> Treatment {
        Treatment::new(cost, COMPACT, Some(example::compact_all(self.table.name().as_str())))
    }

    /// The finding about the type of the column, if there is one.
    fn of_type(&self) -> Option<Finding> {
        if is_blob(self.field) {
            return Some(self.of_blobs());
        }
        let bytes = self.layout.bytes_per_row.unwrap_or(0);
        match (self.field.data_type(), self.layout.heavy) {
            (DataType::List(item) | DataType::LargeList(item), heavy) => {
                (heavy || bytes >= HEAVY_ROW_BYTES as u64).then(|| self.of_lists(item.data_type(), bytes)).flatten()
            }
            (DataType::Struct(members), false) => self.of_light_struct(members, bytes),
            (data_type, false) => (bytes >= LIGHT_ROW_BYTES_MAX).then(|| self.of_large_values(data_type, bytes)),
            (DataType::FixedSizeList(item, length), true) => self.of_elements(item.data_type(), *length),
            (DataType::FixedSizeBinary(length), true) => Some(self.of_fixed_size_binary(*length)),
            (DataType::Struct(members), true) => {
                let what = format!("its values are structs of {bytes} bytes");
                Some(self.finding("struct", what, self.without_struct(members, DECODER)))
            }
            (_, true) if is_compressed_tensor(self.field) => self.of_frames(),
            (data_type, true) if is_variable_width(data_type) => Some(self.of_variable_width(bytes)),
            (data_type, true) => {
                let (table, column) = self.names();
                let remedy = "leave out the field metadata stoker.heavy: the values are read along with light columns";
                let treatment = Treatment::new(DECODER, remedy, Some(example::without_metadata(table, column)));
                Some(self.finding(Obstacle::NotFixedSizeLists.code(), format!("its values are {data_type}"), treatment))
            }
        }
    }

    /// The finding about compressed tensors that take no less than plain ones, or whose metadata is damaged.
    fn of_frames(&self) -> Option<Finding> {
        let Some(plain_bytes) = self.layout.plain_bytes else {
            let cost = "streams and queries cannot decode the column";
            let treatment = Treatment::new(cost, "write the column again, from its original data", None);
            return Some(self.finding("codec_metadata", kind_of(self.field).label(self.field), treatment));
        };
        if plain_bytes < COMPRESSED_BYTES_MIN || self.survey.bytes < plain_bytes {
            return None;
        }
        let what = format!("it is compressed to {} bytes, and its tensors have {plain_bytes}", self.survey.bytes);
        let cost = "each row is decoded, and is read by address, without less to read than plain tensors have";
        let remedy = "write the column without compression: lake.create_table without compression=, from the arrays of a \
                      stream of the table";
        Some(self.finding("useless_compression", what, Treatment::new(cost, remedy, None)))
    }

    fn of_blobs(&self) -> Finding {
        let bytes = self.layout.bytes_per_row.unwrap_or(0);
        let what = format!("its values are blobs of Lance, {bytes} bytes on average");
        let cost = "values are read one by one, without checksums, after their descriptors; Stoker appends no rows to \
                    the table";
        let remedy = format!("nothing, if another program writes the table. Else {BLOB_REMEDY}");
        self.finding("blob", what, Treatment::new(cost, remedy, None))
    }

    /// The finding about lists of any length. `None` when the elements are not numbers, because then there is no
    /// remedy.
    fn of_lists(&self, item: &DataType, bytes: u64) -> Option<Finding> {
        let (table, column) = self.names();
        let (value, element) = match item {
            DataType::List(inner) | DataType::LargeList(inner) | DataType::FixedSizeList(inner, _) => {
                (format!("flatten({})", example::quoted(column)), inner.data_type())
            }
            other => (example::quoted(column).into_owned(), other),
        };
        if !element.is_primitive() {
            return None;
        }
        let value = example::cast(&value, element, "LENGTH");
        let lines = [example::lengths(table, column), example::rewrite_with(table, column, &value)];
        let numbers = element.to_string().to_lowercase();
        let remedy = format!(
            "if all lists have one LENGTH, which the first line below prints, store them as fixed-size lists. From \
             Parquet files: stoker ingest parquet FILES {table} --tensor {column}={numbers}[LENGTH] --mode overwrite",
        );
        let what = format!("its values are lists of any length, {bytes} bytes on average");
        Some(self.finding("lists", what, Treatment::new(DECODER, remedy, Some(lines.join("\n")))))
    }

    /// The finding about fixed-size lists whose elements are not numbers. `None` for numbers.
    fn of_elements(&self, item: &DataType, length: i32) -> Option<Finding> {
        let (table, column) = self.names();
        let treatment = match item {
            item if item.is_primitive() => return None,
            DataType::Boolean => {
                let value = example::cast(&example::quoted(column), &DataType::UInt8, length);
                let remedy = "store them as uint8, in eight times the bytes";
                Treatment::new(DECODER, remedy, Some(example::rewrite_with(table, column, &value)))
            }
            DataType::FixedSizeList(inner, inner_length) => {
                let remedy = "store one list for each row; a NumPy array of shape (rows, …) becomes a tensor in \
                              lake.create_table, which keeps its shape";
                let value = format!("flatten({})", example::quoted(column));
                let length = i64::from(length) * i64::from(*inner_length);
                let value = example::cast(&value, inner.data_type(), length);
                let lines = inner.data_type().is_primitive().then(|| example::rewrite_with(table, column, &value));
                Treatment::new(DECODER, remedy, lines)
            }
            _ => {
                let remedy = "store numbers: integers or floats of a fixed width; bfloat16 as uint16 with the field \
                              metadata stoker.dtype=bfloat16, which lake.create_table sets for PyTorch tensors";
                Treatment::new(DECODER, remedy, None)
            }
        };
        let what = format!("its values are lists of {item}, which are no numbers");
        Some(self.finding(Obstacle::NotNumbers.code(), what, treatment))
    }

    /// The finding about light structs with binary members or many bytes. `None` for other structs.
    fn of_light_struct(&self, members: &Fields, bytes: u64) -> Option<Finding> {
        if bytes < HEAVY_ROW_BYTES as u64 && !members.iter().any(|member| is_binary(member.data_type())) {
            return None;
        }
        let what = format!("its values are structs of {bytes} bytes on average, which are light");
        Some(self.finding("light_struct", what, self.without_struct(members, LIGHT)))
    }

    /// What stores the members of a struct in another way.
    fn without_struct(&self, members: &Fields, cost: &'static str) -> Treatment {
        let (table, column) = self.names();
        if members.iter().any(|member| member.name() == "bytes" && is_binary(member.data_type())) {
            let remedy = format!(
                "if its bytes are JPEG, PNG or WebP files, store them as a column of encoded images. From Parquet files: \
                 stoker ingest parquet FILES {table} --image {column} --mode overwrite"
            );
            return Treatment::new(cost, remedy, Some(example::with_bytes_as_images(table, column)));
        }
        let remedy = format!("make its members columns of their own. {}", sentence(REWRITE));
        let example = example::with_members(table, column, members.iter().map(|member| member.name().as_str()));
        Treatment::new(cost, remedy, Some(example))
    }

    fn of_large_values(&self, data_type: &DataType, bytes: u64) -> Finding {
        let what = format!("its values are {data_type} of {bytes} bytes on average, which are light");
        let remedy = "nothing, if most queries read it. With the field metadata stoker.heavy=true it has data files \
                      of its own, and filters on other columns do not read it";
        self.finding("large_values", what, Treatment::new(LIGHT, remedy, None))
    }

    fn of_fixed_size_binary(&self, length: i32) -> Finding {
        let (table, column) = self.names();
        let remedy = format!(
            "store them as tensors of uint8. From Parquet files: stoker ingest parquet FILES {table} --tensor \
             {column}=uint8[{length}] --mode overwrite",
        );
        let what = format!("its values are {length} bytes without a type of number");
        let example = example::as_tensor_of_bytes(table, column);
        self.finding("fixed_size_binary", what, Treatment::new(DECODER, remedy, Some(example)))
    }

    fn of_variable_width(&self, bytes: u64) -> Finding {
        let cost = "values of different lengths have no fixed offsets: rows are read through Lance's decoder, by \
                    address and with their neighbours";
        let remedy = if is_encoded_image(self.field) {
            "nothing, if training decodes the images. Decoded pixels of one size are read as plain bytes, but take \
             more space: stoker ingest imagefolder DIR TABLE --size HxW"
        } else if bytes < HEAVY_ROW_BYTES as u64 {
            "nothing, if queries seldom select it. With the field metadata stoker.heavy=false it is read along with \
             light columns"
        } else {
            "nothing, if the lengths do differ. If all values have one length, store them as a tensor of uint8"
        };
        let what = format!("its values are {} of any length, {bytes} bytes on average", self.field.data_type());
        self.finding("variable_width", what, Treatment::new(cost, remedy, None))
    }

    /// The finding about an obstacle in the files or pages of some fragments.
    fn of_obstacle(&self, obstacle: Obstacle, fragments: &FragmentTally) -> Finding {
        let what = format!("{obstacle} ({})", self.in_fragments(fragments));
        let treatment = match (obstacle, self.field.data_type()) {
            (Obstacle::Nulls | Obstacle::OnlyNulls | Obstacle::NoFile, DataType::FixedSizeList(item, length)) => {
                self.of_nulls(item.data_type(), *length)
            }
            (Obstacle::NullItems, DataType::FixedSizeList(item, length)) => {
                let (table, column) = self.names();
                let value = format!("array_replace_all({}, NULL, 0)", example::quoted(column));
                let value = example::cast(&value, item.data_type(), length);
                let remedy = "store a number, such as 0 or NaN, where an element is missing";
                Treatment::new(DECODER, remedy, Some(example::rewrite_with(table, column, &value)))
            }
            (Obstacle::NotRowByRow, _) => self.of_blocks(),
            (Obstacle::NoFile, _) => {
                Treatment::new("queries read nulls there", "nothing, if the values are not known", None)
            }
            _ => self.rewrite(DECODER),
        };
        self.finding(obstacle.code(), what, treatment)
    }

    fn of_nulls(&self, element: &DataType, length: i32) -> Treatment {
        let (table, column) = self.names();
        let (from, value) = (example::quoted(table), example::quoted(column));
        let remedy = format!(
            "store zeros where a value is missing, and another column that says whether the value is valid. Or leave \
             these rows out: SELECT * FROM {from} WHERE {value} IS NOT NULL",
        );
        Treatment::new(DECODER, remedy, Some(example::with_zeros(table, column, element, length)))
    }

    /// The treatment of pages that hold several rows in one block, because metadata asked for that or the values are
    /// narrow.
    fn of_blocks(&self) -> Treatment {
        let (table, column) = self.names();
        let remedy = if self.layout.bytes_per_row.is_some_and(|bytes| bytes < ROW_BY_ROW_BYTES_MIN) {
            "leave out the field metadata stoker.heavy: values of so few bytes are read along with other light columns"
        } else {
            "leave out the field metadata lance-encoding:structural-encoding"
        };
        Treatment::new(DECODER, remedy, Some(example::without_metadata(table, column)))
    }

    /// The finding about binary values that are compressed by a general-purpose codec.
    fn of_compression(&self) -> Option<Finding> {
        let is_binary = matches!(self.field.data_type(), DataType::Binary | DataType::LargeBinary);
        if !is_binary || !self.survey.has_general_compression() {
            return None;
        }
        let (table, column) = self.names();
        let treatment = if is_encoded_image(self.field) {
            self.rewrite("images are compressed already: each is decompressed twice, and the column is hardly smaller")
        } else {
            let cost = "each value is decompressed, which saves no bytes where it is a compressed file";
            let remedy = "if they are JPEG, PNG or WebP files, write the column with encoded_images, and they are \
                          stored as they are. Other writers: field metadata lance-encoding:compression=none";
            Treatment::new(cost, remedy, Some(example::as_images(table, column)))
        };
        Some(self.finding("media_compressed", "its values are compressed (zstd or lz4)", treatment))
    }

    fn of_checksums(&self) -> Option<Finding> {
        if self.survey.unchecked.count == 0 {
            return None;
        }
        let what = format!("its rows have no checksums ({})", self.in_fragments(&self.survey.unchecked));
        let mut treatment =
            self.compact("bytes that storage damages are not noticed: reads of these rows are not verified");
        treatment.remedy += "; other writers, and Lance's own compaction, keep no checksums";
        Some(self.finding("no_checksums", what, treatment))
    }

    fn of_pieces(&self) -> Option<Finding> {
        let (bytes, pieces) = (self.survey.bytes, self.survey.num_pieces);
        // Small fragments are a finding of their own.
        let breaks = pieces.saturating_sub(self.table.fragments().len() as u64);
        if self.layout.verdict() != Verdict::Dense || breaks < PIECES_MIN || bytes / pieces.max(1) >= PIECE_BYTES_MIN {
            return None;
        }
        let what = format!("its bytes are in {pieces} pieces of {} KiB on average", (bytes / pieces.max(1)) >> 10);
        let cost = "each piece is a request, which takes an object store about as long as sending 1 MiB";
        Some(self.finding("small_pieces", what, self.compact(cost)))
    }

    fn of_neighbours(&self) -> Option<Finding> {
        let others = match self.survey.neighbours_max {
            0 => return None,
            1 => "one other column".to_string(),
            num => format!("{num} other columns"),
        };
        let cost = format!(
            "queries that do not select it read its page table too, which grows with its chunks ({} now); pages of \
             other columns may separate its pages",
            self.layout.num_chunks
        );
        let mut treatment = self.compact(cost);
        treatment.remedy += "; Stoker gives each heavy column a file of its own";
        Some(self.finding("shared_file", format!("its data files hold {others}"), treatment))
    }

    fn in_fragments(&self, fragments: &FragmentTally) -> String {
        let all = self.table.fragments().len();
        match (fragments.count, fragments.first) {
            (count, Some(first)) if count < all => format!("{count} of {all} fragments, the first is {first}"),
            _ if all == 1 => "its one fragment".into(),
            _ => format!("all {all} fragments"),
        }
    }
}

/// Whether the values are bytes or text of any length. Lance stores no view types.
fn is_variable_width(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary | DataType::Utf8 | DataType::LargeUtf8)
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Whether values are binary values with offsets.
fn is_binary(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Binary | DataType::LargeBinary)
}
