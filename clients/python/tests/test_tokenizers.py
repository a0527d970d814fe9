"""Token ids of text, beside those of the package tokenizers; and functions that decode text."""

from __future__ import annotations

import dataclasses
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tokenizers
import torch
from conftest import Server
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

import stoker
from stoker._config import slice_config
from stoker._distributed import Ranks

WORDS = [
    "the",
    "quick",
    "brown",
    "fox",
    "jumps",
    "over",
    "lazy",
    "dogs",
    "while",
    "seven",
    "wizards",
    "made",
    "toxic",
    "brew",
    "for",
    "the",
    "evil",
    "queen",
    "and",
    "jack",
]

#: Texts of many scripts, with what normalizers and expressions treat in different ways.
TEXTS = [
    "",
    " ",
    "the quick brown fox",
    "The QUICK brown fox's dogs don't jump, they'll sleep.",
    "  two  spaces,\ttabs\n\nand lines \r\n",
    "naïve café, cafe\u0301, ﬁne Ⅷ ①②③ ½",
    "日本語のテキスト、中文文本。한국어",
    "שלום עולם مرحبا بالعالم हिन्दी ไทย",
    "🙂👩‍👩‍👧‍👦🇩🇪 emoji\u200bzero\u00adwidth\ufeff",
    "1234567890 3.14159 1,000,000 0x1F",
    "<|end|>the<|end|> [SEP] [MASK] quick",
    "control\x00\x01\x7f characters\u2028line",
    "https://example.com/a?b=c&d=e#f user@example.com",
    "def f(x):\n    return x ** 2  # comment\n",
    " " * 200 + "end" + "\n" * 50,
    "ab" * 300,
    "unknown wörd " * 40,
]


def corpus() -> list[str]:
    rng = np.random.default_rng(5)
    made = [" ".join(rng.choice(WORDS, 12)) for _ in range(300)]
    return [*made, *TEXTS, *(text.upper() for text in made[:30])]


def trained(model: Any, trainer: Any, **parts: Any) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(model)
    for name, part in parts.items():
        if name != "post_processor":
            setattr(tokenizer, name, part)
    tokenizer.train_from_iterator(corpus(), trainer)
    if "post_processor" in parts:
        tokenizer.post_processor = parts["post_processor"](tokenizer)
    return tokenizer


def bytes_of_gpt() -> tokenizers.Tokenizer:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=alphabet, special_tokens=["<|end|>"], show_progress=False
    )
    return trained(
        models.BPE(),
        trainer,
        pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoder=decoders.ByteLevel(),
        post_processor=lambda _: processors.ByteLevel(trim_offsets=True),
    )


def expression_of_gpt_4() -> tokenizers.Tokenizer:
    expression = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
        r"|\s+(?!\S)|\s+"
    )
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|begin|>", "<|end|>", "<pad>"],
        show_progress=False,
    )
    split = pre_tokenizers.Split(tokenizers.Regex(expression), behavior="isolated")
    begin = lambda found: processors.TemplateProcessing(  # noqa: E731
        single="<|begin|> $A", special_tokens=[("<|begin|>", found.token_to_id("<|begin|>"))]
    )
    bytes_alone = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    sequence = pre_tokenizers.Sequence([split, bytes_alone])
    return trained(
        models.BPE(ignore_merges=True),
        trainer,
        normalizer=normalizers.NFC(),
        pre_tokenizer=sequence,
        post_processor=begin,
    )


def characters() -> tokenizers.Tokenizer:
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<unk>", "<pad>"], show_progress=False)
    normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()])
    pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)]
    )
    model = models.BPE(unk_token="<unk>", fuse_unk=True)
    return trained(model, trainer, normalizer=normalizer, pre_tokenizer=pre_tokenizer)


def pieces_of_bert() -> tokenizers.Tokenizer:
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    template = lambda found: processors.TemplateProcessing(  # noqa: E731
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, found.token_to_id(token)) for token in ("[CLS]", "[SEP]")],
    )
    return trained(
        models.WordPiece(unk_token="[UNK]"),
        trainer,
        normalizer=normalizers.BertNormalizer(),
        pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
        post_processor=template,
    )


def scores_of_t5() -> tokenizers.Tokenizer:
    trainer = trainers.UnigramTrainer(
        vocab_size=300, unk_token="<unk>", special_tokens=["<pad>", "</s>", "<unk>"], show_progress=False
    )
    end = lambda found: processors.TemplateProcessing(  # noqa: E731
        single="$A </s>", special_tokens=[("</s>", found.token_to_id("</s>"))]
    )
    normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(tokenizers.Regex(" {2,}"), " ")])
    return trained(
        models.Unigram(), trainer, normalizer=normalizer, pre_tokenizer=pre_tokenizers.Metaspace(), post_processor=end
    )


def whole_words() -> tokenizers.Tokenizer:
    trainer = trainers.WordLevelTrainer(vocab_size=200, special_tokens=["<unk>", "<pad>"], show_progress=False)
    normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()])
    pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()])
    return trained(models.WordLevel(unk_token="<unk>"), trainer, normalizer=normalizer, pre_tokenizer=pre_tokenizer)


MAKERS = [bytes_of_gpt, expression_of_gpt_4, characters, pieces_of_bert, scores_of_t5, whole_words]


@pytest.fixture(scope="module")
def made() -> dict[str, tokenizers.Tokenizer]:
    return {maker.__name__: maker() for maker in MAKERS}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="module")
def lake(root: str) -> stoker.Lake:
    """A lake with the tables `texts`, `large` (of large_string) and `gaps` (with nulls)."""
    lake = stoker.connect(root)
    ids = np.arange(len(TEXTS))
    lake.create_table("texts", {"id": ids, "text": TEXTS})
    lake.create_table("large", {"id": ids, "text": pa.array(TEXTS, pa.large_string())})
    lake.create_table("gaps", {"id": ids, "text": [None if row == 3 else text for row, text in enumerate(TEXTS)]})
    return lake


def ids_of(loader: Any, name: str = "text") -> dict[int, list[int]]:
    return {
        int(row): np.asarray(tokens).tolist()
        for batch in loader
        for row, tokens in zip(batch["id"], batch[name], strict=True)
    }


@pytest.mark.parametrize("name", [maker.__name__ for maker in MAKERS])
@pytest.mark.parametrize("special", [True, False])
def test_ids_are_those_of_the_package(
    lake: stoker.Lake, made: dict[str, tokenizers.Tokenizer], name: str, special: bool
) -> None:
    tokenizer = made[name]
    decode = {"text": stoker.Tokenizer(tokenizer.to_str(), add_special_tokens=special)}
    expected = {row: tokenizer.encode(text, add_special_tokens=special).ids for row, text in enumerate(TEXTS)}
    for table in ("texts", "large"):
        query = lake.sql(f"SELECT id, text FROM {table}")
        assert ids_of(query.stream(batch_size=4, seed=7, decode=decode)) == expected
    assert expected[2], "the test has tokens"


@pytest.mark.parametrize("name", [maker.__name__ for maker in MAKERS])
@pytest.mark.parametrize("side", ["left", "right"])
def test_rows_of_one_length_are_those_of_the_package(
    lake: stoker.Lake, made: dict[str, tokenizers.Tokenizer], name: str, side: str
) -> None:
    tokenizer = tokenizers.Tokenizer.from_str(made[name].to_str())
    pad = tokenizer.token_to_id("[PAD]") or tokenizer.token_to_id("<pad>") or 0
    decoder = stoker.Tokenizer(tokenizer, length=9, pad=pad, pad_side=side, truncate_side=side)
    tokenizer.enable_truncation(9, direction=side)
    tokenizer.enable_padding(direction=side, pad_id=pad, length=9)
    query = lake.sql("SELECT id, text FROM texts")
    for batch in query.numpy(batch_size=4, seed=7, decode={"text": decoder}):
        assert (batch["text"].dtype, batch["text"].shape) == (np.int32, (batch.num_rows, 9))
        assert (batch["text_mask"].dtype, batch["text_mask"].shape) == (np.bool_, (batch.num_rows, 9))
        for row, number in enumerate(batch["id"].tolist()):
            expected = tokenizer.encode(TEXTS[number])
            assert batch["text"][row].tolist() == expected.ids
            assert batch["text_mask"][row].tolist() == [flag == 1 for flag in expected.attention_mask]
            assert batch["text_length"][row] == sum(expected.attention_mask)


def test_shorter_rows_keep_their_special_tokens(lake: stoker.Lake, made: dict[str, tokenizers.Tokenizer]) -> None:
    tokenizer = made["pieces_of_bert"]
    ids = ids_of(
        lake.sql("SELECT id, text FROM texts").stream(
            batch_size=4, decode={"text": stoker.Tokenizer(tokenizer, tokens_max=6)}
        )
    )
    begin, end = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    assert all((tokens[0], tokens[-1]) == (begin, end) and len(tokens) <= 6 for tokens in ids.values())
    assert max(len(tokens) for tokens in ids.values()) == 6


def test_ragged_shapes_the_rows_of_each_loader(lake: stoker.Lake, made: dict[str, tokenizers.Tokenizer]) -> None:
    tokenizer = made["scores_of_t5"]
    query = lake.sql("SELECT id, text FROM texts")
    options: dict[str, Any] = {"batch_size": 4, "shuffle": False, "decode": {"text": stoker.Tokenizer(tokenizer)}}
    expected = {row: tokenizer.encode(text).ids for row, text in enumerate(TEXTS)}
    assert ids_of(query.numpy(**options)) == expected
    assert ids_of(query.torch(**options)) == expected
    for batch in query.torch(ragged="jagged", **options):
        assert batch["text"].is_nested
        assert [row.tolist() for row in batch["text"].unbind()] == [expected[row] for row in batch["id"].tolist()]
    padding = stoker.Pad(multiple=8, value=tokenizer.token_to_id("<pad>"), mask="attention_mask")
    for batch in query.torch(ragged={"text": padding}, **options):
        assert batch["text"].dtype == torch.int32
        assert batch["text"].shape[1] % 8 == 0
        for row, tokens, mask in zip(batch["id"].tolist(), batch["text"], batch["attention_mask"], strict=True):
            assert tokens[mask].tolist() == expected[row]
    wide = stoker.Tokenizer(tokenizer, length=4, dtype="int64")
    assert next(iter(query.torch(batch_size=4, decode={"text": wide})))["text"].dtype == torch.int64


def test_a_stream_tells_its_columns(lake: stoker.Lake, made: dict[str, tokenizers.Tokenizer]) -> None:
    query = lake.sql("SELECT id, text FROM texts")
    lists = query.stream(batch_size=4, decode={"text": stoker.Tokenizer(made["characters"])})
    assert lists.schema.field("text").type == pa.large_list(pa.int32())
    rows = query.stream(batch_size=4, decode={"text": stoker.Tokenizer(made["characters"], length=5)})
    assert rows.schema.names == ["id", "text", "text_mask", "text_length"]
    assert stoker.tensor_shape(rows.schema.field("text_mask")) == (5,)


def test_ids_are_the_same_on_all_ranks_and_behind_a_server(
    root: str, lake: stoker.Lake, made: dict[str, tokenizers.Tokenizer]
) -> None:
    tokenizer = made["bytes_of_gpt"]
    expected = {row: tokenizer.encode(text).ids for row, text in enumerate(TEXTS)}
    assert lake.tables()
    server = Server(root)
    try:
        query = stoker.connect(server.url).sql("SELECT id, text, upper(text) AS loud FROM texts")
        found: dict[int, list[int]] = {}
        for rank in range(2):
            decode = {"text": stoker.Tokenizer(tokenizer), "loud": stoker.Tokenizer(made["whole_words"])}
            options = {"batch_size": 3, "seed": 7, "rank": rank, "world_size": 2, "decode": decode}
            found |= ids_of(query.torch(last_batch="uneven", **options))
            loud = ids_of(query.torch(last_batch="uneven", **options), "loud")
            assert all(
                loud[row] == made["whole_words"].encode(TEXTS[row].upper()).ids for row in loud if TEXTS[row].isascii()
            )
        assert found == expected
    finally:
        server.stop()


def test_texts_without_ids_are_bad_rows(lake: stoker.Lake, made: dict[str, tokenizers.Tokenizer]) -> None:
    def check(table: str, words: str, **options: Any) -> None:
        query, decode = lake.sql(f"SELECT id, text FROM {table}"), {"text": stoker.Tokenizer(tokenizer, **options)}
        with pytest.raises(stoker.DataCorruptError, match=words):
            list(query.stream(batch_size=4, decode=decode))
        stream = query.stream(batch_size=4, seed=7, decode=decode, bad_rows="substitute", max_bad_share=1)
        rows = [int(row) for batch in stream for row in batch["id"]]
        assert len(rows) == len(TEXTS)
        assert stream.substituted()

    tokenizer = made["pieces_of_bert"]
    check("gaps", r"column text, row id 3 of gaps version 1 .*: the text cannot be decoded: it is null")
    check(
        "texts",
        r"text, row id \d+ of texts .*it has \d+ tokens, more than the 20 of tokens_max",
        tokens_max=20,
        truncate=False,
    )
    check("texts", r"text, row id \d+ of texts .*it has \d+ bytes, more than the limit of 300", text_bytes_max=300)


def test_options_and_columns_that_do_not_fit_are_refused(
    lake: stoker.Lake, made: dict[str, tokenizers.Tokenizer], tmp_path: Path
) -> None:
    def refused(
        words: str, file: Any = made["pieces_of_bert"], kind: Any = stoker.InvalidRequestError, **options: Any
    ) -> None:
        with pytest.raises(kind, match=words):
            stoker.Tokenizer(file, **options)

    refused("length is 1; it must be from 2", length=1)
    refused("length is -1", length=-1)
    refused("tokens_max is 3, and length is 5", length=5, tokens_max=3)
    refused("pad needs length", pad=0)
    refused('pad is "none", which is no token of the vocabulary', length=5, pad="none")
    refused("pad is missing", made["bytes_of_gpt"], length=5)
    refused('pad_side is "up"', pad_side="up")
    refused('dtype is "int8"', dtype="int8")
    refused("file is a int", 3)
    path = tmp_path / "words.json"
    refused(r"words\.json", path, stoker.NotFoundError)
    path.write_bytes(b"\xff\xd8\xff")
    refused(r"words\.json is no tokenizer\.json .*: it is no text", path)
    path.write_text('{"model": 3}')
    refused(r"words\.json is no tokenizer\.json of the library tokenizers", str(path))
    refused("given as text is no tokenizer", '{"version": "1.0"}')
    drawing = json.loads(made["bytes_of_gpt"].to_str())
    drawing["model"]["dropout"] = 0.1
    refused("its model has dropout", json.dumps(drawing))
    with path.open("wb") as file:
        file.truncate(257 << 20)
    refused(r"words\.json has 269484032 bytes, more than the limit of 268435456", path)
    decode = {"id": stoker.Tokenizer(made["characters"])}
    with pytest.raises(stoker.InvalidRequestError, match="column id holds Int64, no texts"):
        next(iter(lake.sql("SELECT id FROM texts").stream(batch_size=4, decode=decode)))
    lake.create_table("raw", {"text": pa.array([b"a"], pa.large_binary())}, mode="overwrite")
    decode = {"text": stoker.Tokenizer(made["characters"])}
    with pytest.raises(stoker.InvalidRequestError, match=r"holds LargeBinary, no texts.*write the column as text"):
        next(iter(lake.sql("SELECT text FROM raw").stream(batch_size=4, decode=decode)))


def test_files_folders_and_objects_give_one_tokenizer(made: dict[str, tokenizers.Tokenizer], tmp_path: Path) -> None:
    tokenizer = made["expression_of_gpt_4"]
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_str())
    text = stoker.Tokenizer(tokenizer.to_str(), length=8)
    for file in (tmp_path, tmp_path / "tokenizer.json", str(tmp_path), tokenizer):
        assert stoker.Tokenizer(file, length=8) == text
    assert text.pad_id == tokenizer.token_to_id("<pad>")
    assert text.vocabulary_size == tokenizer.get_vocab_size()
    assert stoker.Tokenizer(tokenizer, length=8, pad="<|end|>").pad_id == tokenizer.token_to_id("<|end|>")
    assert dataclasses.replace(text, length=4).length == 4
    assert stoker.Tokenizer(made["characters"], length=8) != text
    assert len(repr(text)) < 400


def test_a_copy_in_another_process_needs_no_file(
    lake: stoker.Lake, made: dict[str, tokenizers.Tokenizer], tmp_path: Path
) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(made["whole_words"].to_str())
    tokenizer = stoker.Tokenizer(path, tokens_max=7)
    stream = lake.sql("SELECT id, text FROM texts").stream(batch_size=4, seed=7, decode={"text": tokenizer})
    saved = pickle.dumps((tokenizer, stream))
    path.unlink()
    copy, copied = pickle.loads(saved)
    assert copy == tokenizer
    assert ids_of(copied) == ids_of(stream)


def test_ranks_compare_their_tokenizers(made: dict[str, tokenizers.Tokenizer]) -> None:
    def agreed(tokenizer: stoker.Tokenizer) -> Any:
        config = slice_config(ranks=Ranks(0, 2, "group"), batch_size=4, decode={"text": tokenizer})
        return config.agreed()["tokenizers"]

    first = agreed(stoker.Tokenizer(made["characters"]))
    assert list(first) == ["text"]
    assert agreed(stoker.Tokenizer(made["characters"].to_str())) == first
    assert agreed(stoker.Tokenizer(made["whole_words"])) != first
    assert agreed(stoker.Tokenizer(made["characters"], length=9)) != first


def test_functions_decode_text(lake: stoker.Lake) -> None:
    def letters(text: str) -> np.ndarray:
        assert isinstance(text, str)
        if text.startswith("def"):
            raise stoker.BadRow("it is code")
        return np.array([ord(letter) for letter in text], np.int64)

    query = lake.sql("SELECT id, text FROM texts")
    decoder = stoker.Decoder(letters, shape=(None,), dtype="int64")
    stream = query.stream(batch_size=4, seed=7, decode={"text": decoder}, bad_rows="substitute", max_bad_share=1)
    for row, tokens in ids_of(stream).items():
        assert "".join(map(chr, tokens)) == TEXTS[row]
    assert len(stream.substituted()) == 1
    with pytest.raises(stoker.DataCorruptError, match="it is code"):
        list(query.stream(batch_size=4, decode={"text": decoder}))
    sizes = stoker.Decoder(lambda text: np.array([len(text), 0]), shape=2, dtype="int64")
    for batch in query.torch(batch_size=4, decode={"text": sizes}):
        assert batch["text"][:, 0].tolist() == [len(TEXTS[row]) for row in batch["id"].tolist()]


def test_functions_make_rows_of_any_length_of_files(lake: stoker.Lake) -> None:
    values = [np.arange(4 * row, dtype=np.float32).tobytes() for row in range(1, 13)]
    lake.create_table("boxes", {"id": np.arange(12), "boxes": pa.array(values, pa.large_binary())}, mode="overwrite")
    query = lake.sql("SELECT id, boxes FROM boxes")

    def unpack(value: bytes) -> np.ndarray:
        return np.frombuffer(value, np.float32).reshape(-1, 2, 2)

    decode = {"boxes": stoker.Decoder(unpack, shape=(None, 2, 2))}
    for batch in query.numpy(batch_size=5, seed=7, decode=decode, ragged="jagged"):
        for row, boxes in zip(batch["id"].tolist(), batch["boxes"], strict=True):
            np.testing.assert_array_equal(boxes, unpack(values[row]))
    for words, shape in [("says float32\\[any, 4\\]", (None, 4)), ("says float32\\[any\\]", (None,))]:
        with pytest.raises(stoker.InvalidRequestError, match=words):
            list(query.numpy(batch_size=5, decode={"boxes": stoker.Decoder(unpack, shape=shape)}))
    with pytest.raises(stoker.InvalidRequestError, match="shape has a dimension of any size that is not the first"):
        stoker.Decoder(unpack, shape=(2, None))
