//! Tests of columns of videos of which clips are read.

use std::collections::BTreeMap;
use std::path::Path;

use arrow_array::{Array, Float64Array, LargeBinaryArray};
use stoker_chunks::{CacheOptions, ChunkCache};
use stoker_columns::encoded_video::with_video_index;
use stoker_decode::{draw_start, sample_seed};
use stoker_types::{BadRows, ClipStart, ColumnClip, ErrorKind, StreamStats};
use stoker_video::{ByteSource, ClipBytes, Position, VideoClip, VideoIndex};

use super::*;

const NUM_ROWS: usize = 60;

/// The row whose video is null.
const NULL: usize = 17;

const VIDEOS: &str = "SELECT video, id, seconds FROM t";

/// Returns the files of the rows. Bytes after the end of the video make each of them unique and large.
fn files() -> Vec<Option<Vec<u8>>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stoker-video/tests/fixtures");
    let names = ["h264.mp4", "vp9.webm", "hevc_open_gop.mp4", "open_gop.mp4", "fragmented.mp4"];
    let read = |name| std::fs::read(folder.join(name)).expect("a file");
    let file = |row: usize| {
        let name = names[row % names.len()];
        let mut file = read(name);
        if name.ends_with(".mp4") {
            // A box of an unknown type.
            let filling = 40_000 + row;
            file.extend((filling as u32 + 8).to_be_bytes());
            file.extend(b"free");
            file.extend((0..filling).map(|at| (at * 31 + row) as u8));
        }
        (row != NULL).then_some(file)
    };
    (0..NUM_ROWS).map(file).collect()
}

/// Makes a lake with table `t`: a video, an id and a time, in several pages and fragments.
async fn videos(uri: &str, files: &[Option<Vec<u8>>]) -> Engine {
    let lake = LakeStore::open(uri, &StorageOptions::default()).await.expect("a lake");
    let name = TableName::try_new("t").expect("a name");
    let video = with_video_index(&Field::new("video", DataType::LargeBinary, true));
    let fields = vec![video, Field::new("id", DataType::Int64, false), Field::new("seconds", DataType::Float64, false)];
    let schema = Arc::new(Schema::new(fields));
    let options = WriteOptions { page_bytes: 300_000, rows_per_fragment_max: 25, ..WriteOptions::default() };
    let mut writer = lake.writer(&name, &schema, false, options).await.expect("a writer");
    let columns: Vec<arrow_array::ArrayRef> = vec![
        Arc::new(LargeBinaryArray::from_iter(files.iter().map(Option::as_deref))),
        Arc::new(Int64Array::from_iter_values(0..files.len() as i64)),
        Arc::new(Float64Array::from_iter_values((0..files.len()).map(|row| row as f64 / 100.0))),
    ];
    writer.write(&RecordBatch::try_new(schema, columns).expect("a batch")).await.expect("written");
    let schema = writer.schema();
    assert_eq!(schema.fields().len(), 4);
    let drafts = writer.finish().await.expect("finished");
    lake.commit(&name, &schema, CommitMode::Create, drafts, None).await.expect("committed");
    Engine::new(lake, EngineOptions::default())
}

fn clip(start: ClipStart) -> ColumnClip {
    ColumnClip { column: "video".into(), frames: 2, stride: 1, start, offsets: None, within: None }
}

/// Checks that a value has the frames that a clip needs, and no others but those in between.
fn check(value: &[u8], file: &[u8], clip: &ColumnClip, position: u64, epoch: u64, start: Option<Position>) {
    let read = ClipBytes::read(value).expect("a value").expect("a clip, not a file");
    let index = VideoIndex::read(file).expect("an index");
    assert_eq!(read.index, index);
    let (draw, _) = draw_start(sample_seed(7, epoch, position, "video"));
    let frames = VideoClip::choosing(clip).expect("a clip").frames_of(&index, start, draw).expect("frames");
    let packets = frames.packets(&index);
    for number in packets.numbers() {
        let frame = index.frames()[number];
        let expected = file.bytes(frame.offset, frame.size as usize);
        assert!(expected.is_some());
        assert_eq!(read.pieces.bytes(frame.offset, frame.size as usize), expected);
    }
    let ranges = packets.byte_ranges(&index, 4 << 10);
    let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    assert_eq!(value.len() as u64, ClipBytes::head(&index, &ranges).len() as u64 + bytes);
}

/// Reads the rows of all ranks of an epoch, and checks their videos. Returns the bytes that were read.
async fn read(plan: &StreamPlan, files: &[Option<Vec<u8>>], clip: &ColumnClip, world: u32, epoch: u64) -> u64 {
    let (mut ids, mut bytes_read) = (Vec::new(), 0);
    for rank in 0..world {
        let slice = Slice { epoch, ..slice(rank, world, BatchSize::Global(12), LastBatch::Uneven) };
        let mut stream = plan.open(&slice, &ReadOptions::default()).expect("a stream");
        while let Some(batch) = stream.next().await.expect("a batch") {
            let share = slice.share(batch.step, plan.num_rows());
            let videos = batch.data["video"].as_binary::<i64>();
            let seconds = batch.data["seconds"].as_primitive::<arrow_array::types::Float64Type>();
            for (row, id) in batch.data["id"].as_primitive::<Int64Type>().values().iter().enumerate() {
                ids.push(*id);
                let start = Some(Position::Seconds(seconds.value(row)));
                match &files[*id as usize] {
                    None => assert!(videos.is_null(row)),
                    Some(file) => check(videos.value(row), file, clip, share.position(row as u64), epoch, start),
                }
            }
        }
        bytes_read += stream.stats().bytes_read;
    }
    ids.sort_unstable();
    assert_eq!(ids, (0..files.len() as i64).collect::<Vec<_>>());
    bytes_read
}

#[test]
fn rows_have_the_frames_of_their_clips_in_all_orders_and_worlds() {
    let (folder, files) = (tempfile::tempdir().expect("a folder"), files());
    run(async {
        let engine = videos(folder.path().to_str().expect("UTF-8"), &files).await;
        for (shuffle, version) in ORDERS {
            let whole = plan_of_version(&engine, VIDEOS, shuffle, version).await;
            for start in [ClipStart::Random, ClipStart::Column("seconds".into()), ClipStart::Frame(3)] {
                let clip = clip(start);
                let plan = whole.with_clips(std::slice::from_ref(&clip)).expect("a plan");
                assert_eq!((plan.stream_id(), plan.spec()), (whole.stream_id(), whole.spec()));
                for (world, epoch) in [(1, 0), (3, 1)] {
                    let bytes_read = read(&plan, &files, &clip, world, epoch).await;
                    let bytes: usize = files.iter().flatten().map(Vec::len).sum();
                    assert!(bytes_read > 0 && bytes_read * 3 < bytes as u64, "{bytes_read} of {bytes} bytes");
                }
            }
        }
    });
}

#[test]
fn clips_within_bounds_of_the_rows_have_their_frames() {
    let (folder, files) = (tempfile::tempdir().expect("a folder"), files());
    run(async {
        let engine = videos(folder.path().to_str().expect("UTF-8"), &files).await;
        let query = "SELECT video, id, CAST(2 AS BIGINT) AS from_frame, seconds + 0.2 AS until FROM t";
        let plan = plan(&engine, query, ShuffleMode::Block).await;
        let within = Some(("from_frame".to_string(), "until".to_string()));
        let clip = ColumnClip { frames: 4, within, ..clip(ClipStart::Uniform) };
        let plan = plan.with_clips(std::slice::from_ref(&clip)).expect("a plan");
        let slice = slice(0, 1, BatchSize::Global(12), LastBatch::Uneven);
        let mut stream = plan.open(&slice, &ReadOptions::default()).expect("a stream");
        let mut num_clips = 0;
        while let Some(batch) = stream.next().await.expect("a batch") {
            let ends = batch.data["until"].as_primitive::<arrow_array::types::Float64Type>();
            for (row, value) in batch.data["video"].as_binary::<i64>().iter().enumerate() {
                let Some(value) = value else { continue };
                let read = ClipBytes::read(value).expect("a value").expect("a clip, not a file");
                let bounds = [Some(Position::Frame(2)), Some(Position::Seconds(ends.value(row)))];
                let chosen = VideoClip::choosing(&clip).expect("a clip").frames_of_row(&read.index, &bounds, 0);
                for number in chosen.iter().flat_map(|frames| frames.packets(&read.index).numbers().collect::<Vec<_>>())
                {
                    let frame = read.index.frames()[number];
                    assert!(read.pieces.bytes(frame.offset, frame.size as usize).is_some());
                    num_clips += 1;
                }
            }
        }
        assert!(num_clips > NUM_ROWS);
    });
}

/// Reads an epoch of a lake in memory with a cache. Returns the videos by id, and the statistics.
async fn cached(plan: &StreamPlan, cache: &ChunkCache, epoch: u64) -> (BTreeMap<i64, Option<Vec<u8>>>, StreamStats) {
    let resources = Resources::new(64 << 20).with_cache(Some(cache.clone()));
    let slice = Slice { epoch, ..slice(0, 1, BatchSize::Global(12), LastBatch::Uneven) };
    let mut stream = plan.open_within(&resources, &slice, &ReadOptions::default()).expect("a stream");
    let mut found = BTreeMap::new();
    while let Some(batch) = stream.next().await.expect("a batch") {
        let ids = batch.data["id"].as_primitive::<Int64Type>().values();
        let videos = batch.data["video"].as_binary::<i64>().iter().map(|video| video.map(<[u8]>::to_vec));
        found.extend(ids.iter().copied().zip(videos));
    }
    cache.settled().await;
    (found, stream.stats())
}

#[test]
fn a_cache_keeps_clips_that_are_the_same_in_every_epoch() {
    let files = files();
    run(async {
        let engine = videos("memory://lake", &files).await;
        for (start, are_kept) in [(ClipStart::Column("seconds".into()), true), (ClipStart::Random, false)] {
            let folder = tempfile::tempdir().expect("a folder");
            let options = CacheOptions { dir: folder.path().to_path_buf(), bytes_max: Some(1 << 30) };
            let cache = ChunkCache::open(&options).await.expect("a cache");
            let plan = plan(&engine, VIDEOS, ShuffleMode::Block).await.with_clips(&[clip(start)]).expect("a plan");
            let (first, stats) = cached(&plan, &cache, 0).await;
            assert_eq!(first.len(), NUM_ROWS);
            assert_eq!((stats.cache_miss_bytes > 0, stats.cache_hit_bytes), (are_kept, 0));
            let (second, again) = cached(&plan, &cache, 1).await;
            assert_eq!((again.cache_miss_bytes, again.cache_hit_bytes), (0, stats.cache_miss_bytes));
            assert_eq!(first == second, are_kept);
            assert_eq!(again.bytes_read == 0, are_kept, "{again:?}");
        }
    });
}

#[test]
fn rows_are_estimated_by_their_clips() {
    let (folder, files) = (tempfile::tempdir().expect("a folder"), files());
    run(async {
        let engine = videos(folder.path().to_str().expect("UTF-8"), &files).await;
        let whole = plan(&engine, VIDEOS, ShuffleMode::Block).await;
        let clips = whole.with_clips(&[clip(ClipStart::Uniform)]).expect("a plan");
        let scan = stoker_chunks::ChunkScan::new(stoker_chunks::ChunkScanOptions::default());
        let estimated = clips.estimated(&scan).await.row_bytes();
        assert!(estimated > 1_000 && estimated * 2 < whole.row_bytes(), "{estimated} of {}", whole.row_bytes());
        let again = whole.with_clips(&[clip(ClipStart::Uniform)]).expect("a plan");
        assert_eq!(again.row_bytes(), estimated, "it is known");
    });
}

#[test]
fn starts_outside_of_a_video_come_without_frames() {
    let (folder, files) = (tempfile::tempdir().expect("a folder"), files());
    run(async {
        let engine = videos(folder.path().to_str().expect("UTF-8"), &files).await;
        let plan = plan(&engine, VIDEOS, ShuffleMode::Block).await;
        let plan = plan.with_clips(&[clip(ClipStart::Frame(1_000))]).expect("a plan");
        let slice = slice(0, 1, BatchSize::Global(12), LastBatch::Uneven);
        let mut stream = plan.open(&slice, &ReadOptions::default()).expect("a stream");
        while let Some(batch) = stream.next().await.expect("a batch") {
            for value in batch.data["video"].as_binary::<i64>().iter().flatten() {
                let read = ClipBytes::read(value).expect("a value").expect("a clip");
                let frame = read.index.frames()[0];
                assert_eq!(read.pieces.bytes(frame.offset, frame.size as usize), None);
            }
        }
    });
}

#[test]
fn clips_that_are_not_valid_are_refused_and_other_columns_stay_whole() {
    let (folder, files) = (tempfile::tempdir().expect("a folder"), files());
    run(async {
        let engine = videos(folder.path().to_str().expect("UTF-8"), &files).await;
        let plan = plan(&engine, VIDEOS, ShuffleMode::Block).await;
        let wrong = ColumnClip { frames: 0, ..clip(ClipStart::Random) };
        let twice = [clip(ClipStart::Random), clip(ClipStart::Uniform)];
        for clips in [&[wrong][..], &twice] {
            let error = plan.with_clips(clips).err().expect("an error");
            assert_eq!(error.kind(), ErrorKind::InvalidRequest, "{error}");
        }
        let others = ["id", "none"].map(|column| ColumnClip { column: column.into(), ..clip(ClipStart::Random) });
        let unknown_start = clip(ClipStart::Column("video".into()));
        let plan = plan.with_clips(&[others.as_slice(), &[unknown_start]].concat()).expect("a plan");
        let slice = slice(0, 1, BatchSize::Global(12), LastBatch::Uneven);
        let mut stream = plan.open(&slice, &ReadOptions::default()).expect("a stream");
        let batch = stream.next().await.expect("a batch").expect("a batch");
        let ids = batch.data["id"].as_primitive::<Int64Type>();
        for (value, id) in batch.data["video"].as_binary::<i64>().iter().zip(ids.values()) {
            assert_eq!(value, files[*id as usize].as_deref());
        }
    });
}

/// Flips a bit of a file of a row in the data files of the table.
fn damage(folder: &Path, file: &[u8], at: usize) {
    let mut found = 0;
    for entry in std::fs::read_dir(folder.join("t.lance/data")).expect("a folder") {
        let path = entry.expect("a file").path();
        let mut stored = std::fs::read(&path).expect("a file");
        if let Some(start) = stored.windows(file.len()).position(|window| window == file) {
            stored[start + at] ^= 1;
            std::fs::write(&path, stored).expect("written");
            found += 1;
        }
    }
    assert_eq!(found, 1);
}

#[test]
fn damage_in_a_frame_of_a_clip_makes_its_row_bad() {
    let (folder, files) = (tempfile::tempdir().expect("a folder"), files());
    run(async {
        let engine = videos(folder.path().to_str().expect("UTF-8"), &files).await;
        let (near, far) = (files[5].as_deref().expect("a file"), files[10].as_deref().expect("a file"));
        let index = VideoIndex::read(near).expect("an index");
        let (first, last) = (index.frames()[0], *index.frames().last().expect("a frame"));
        // The clips have the first frames: damage of a last frame does not matter.
        damage(folder.path(), near, first.offset as usize + 3);
        damage(folder.path(), far, last.offset as usize + 3);
        let plan = plan(&engine, VIDEOS, ShuffleMode::Sequential).await;
        let plan = plan.with_clips(&[clip(ClipStart::Frame(0))]).expect("a plan");
        let slice = slice(0, 1, BatchSize::Global(12), LastBatch::Uneven);
        let mut stream = plan.open(&slice, &ReadOptions::default()).expect("a stream");
        let error = stream.next().await.expect_err("an error");
        assert_eq!(error.kind(), ErrorKind::DataCorrupt);
        assert!(error.to_string().contains("0x5"), "{error}");
        let options = ReadOptions { bad_rows: BadRows::Substitute, ..ReadOptions::default() };
        let mut stream = plan.open(&slice, &options).expect("a stream");
        let (mut ids, mut substituted) = (Vec::new(), 0);
        while let Some(batch) = stream.next().await.expect("a batch") {
            substituted += batch.substituted.len();
            ids.extend_from_slice(batch.data["id"].as_primitive::<Int64Type>().values());
        }
        assert_eq!((ids.len(), substituted), (NUM_ROWS, 1));
        assert!(!ids.contains(&5) && ids.contains(&10));
        let unverified = ReadOptions { verify: false, ..ReadOptions::default() };
        let mut stream = plan.open(&slice, &unverified).expect("a stream");
        while stream.next().await.expect("a batch").is_some() {}
    });
}
