"""What notebooks show of lakes, tables, queries, plans, classes and images: HTML in which all values are escaped."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import NUM_ROWS, Server, make_columns
from PIL import Image

import stoker

SCRIPT = "<script>alert(1)</script>"
#: Tags that have no end.
VOID = {"br", "img"}
#: A file that begins as a PNG, and is none.
TORN_PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(40))


class Tags(HTMLParser):
    """Checks that every tag ends where it should, and collects the text outside of styles."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


def shown(thing: Any) -> str:
    """Returns the HTML of a thing, which must be well-formed and without scripts."""
    html = thing._repr_html_()
    assert isinstance(html, str)
    assert "<script" not in html
    tags = Tags()
    tags.feed(html)
    tags.close()
    assert tags.open == []
    return html


def text_of(thing: Any) -> str:
    """Returns the text that is seen of a thing."""
    tags = Tags()
    tags.feed(shown(thing))
    return tags.text


def images_in(html: str) -> list[Image.Image]:
    found = re.findall(r'src="data:image/(?:png|jpeg);base64,([^"]+)"', html)
    return [Image.open(io.BytesIO(base64.b64decode(data))) for data in found]


def encoded(kind: str, width: int, height: int, mode: str = "RGB") -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, (width, height)).save(buffer, kind)
    return buffer.getvalue()


@pytest.fixture
def memory() -> stoker.Lake:
    """An empty lake."""
    return stoker.connect("memory://")


def test_small_results_are_whole_and_large_ones_begin(lake: stoker.Lake) -> None:
    for limit in (0, 1, 20):
        html = shown(lake.sql(f"SELECT id, name FROM samples ORDER BY id LIMIT {limit}"))
        assert html.count("<tr>") == 1 + limit
        assert {0: "no rows", 1: "1 row", 20: "20 rows"}[limit] in html
        assert "first" not in html
    larger = shown(lake.sql("SELECT id, name FROM samples ORDER BY id;"))
    assert larger.count("<tr>") == 1 + 8
    assert "row 7<" in larger
    assert "row 8<" not in larger
    # The number of rows of a table is known; that of a filter would be another query.
    assert f"first 8 rows of {NUM_ROWS}<" in larger
    assert "first 8 rows<" in shown(lake.sql("SELECT id FROM samples WHERE label < 9"))


def test_results_are_the_same_through_a_server(lake: stoker.Lake, server: Server) -> None:
    remote = stoker.connect(server.url)
    for sql in ("SELECT id, image, name, emb FROM samples ORDER BY id", "SHOW TABLES", "DESCRIBE samples"):
        assert shown(remote.sql(sql)) == shown(lake.sql(sql))
    assert shown(remote.table("samples")) == shown(lake.table("samples"))
    assert "samples" in text_of(remote)


def test_everything_is_escaped(memory: stoker.Lake, tmp_path: Path) -> None:
    query = memory.sql(f'SELECT $1 AS "<b>&", make_array($1, NULL) AS lists -- {SCRIPT}', params=[SCRIPT])
    assert text_of(query).count("alert") == 4  # the comment, the parameter, and two values
    assert "&lt;b&gt;&amp;<br>" in shown(query)
    long = SCRIPT * 50
    assert "&lt;script&gt;" in shown(memory.sql("SELECT $1 AS x", params=[long]))
    memory.create_table("texts", {"label": [SCRIPT, SCRIPT, None], "image": np.zeros((3, 2, 2), np.uint8)})
    texts = memory.sql("SELECT * FROM texts")
    assert SCRIPT in text_of(texts.class_balance("label"))
    assert SCRIPT in text_of(texts.image_grid("image", label="label"))
    assert SCRIPT in text_of(memory.sql(f"SELECT '{SCRIPT}' AS x").explain())
    assert SCRIPT in text_of(memory.sql("EXPLAIN SELECT label FROM texts WHERE label <> $1", params=[SCRIPT]))
    odd = tmp_path / "<b>lake"
    lake = stoker.connect(str(odd))
    lake.create_table("a", {"<i>": [1]}).tag("v1")
    assert "&lt;b&gt;lake" in shown(lake)
    assert "&lt;i&gt;" in shown(lake.table("a"))


def test_numbers_are_short_and_to_the_right(memory: stoker.Lake) -> None:
    numbers = [0.1234567890123, float("nan"), float("-inf"), 1e300, 12345678901, 2.5]
    sql = "SELECT " + ", ".join(f"${index} AS c{index}" for index in range(1, 7)) + ", true AS flag, 'a' AS word"
    html = shown(memory.sql(sql, params=numbers))
    assert '<td class="stoker-number"><span title="0.1234567890123">0.123457</span></td>' in html
    for number in ("NaN", "-inf", "1e+300", "12345678901", "2.5"):
        assert f'<td class="stoker-number">{number}</td>' in html
    assert "<td>true</td>" in html
    assert '<td><span class="stoker-text">a</span></td>' in html


def test_nulls_are_no_texts(memory: stoker.Lake) -> None:
    html = shown(memory.sql("SELECT CAST(NULL AS INT) AS a, NULL AS b, CAST(NULL AS TEXT) AS c, 'NULL' AS d, '' AS e"))
    assert html.count('<span class="stoker-null">NULL</span>') == 3
    assert html.count(">NULL<") == 4


def test_long_texts_open(memory: stoker.Lake) -> None:
    html = shown(memory.sql("SELECT $1 AS x", params=["word " * 100]))
    assert "<details><summary>word word" in html
    assert html.count("word ") >= 100
    lines = shown(memory.sql("SELECT $1 AS x", params=["a\n\n\n\nb"]))
    assert '<div class="stoker-long">a\n\n\n\nb</div>' in lines
    endless = shown(memory.sql("SELECT $1 AS x", params=["x" * 50_000]))
    assert "(50,000 characters)" in endless
    assert len(endless) < 20_000


def test_many_columns_are_counted(memory: stoker.Lake) -> None:
    html = shown(memory.sql("SELECT " + ", ".join(f"{index} AS c{index}" for index in range(70))))
    assert "c59<br>" in html
    assert "c60<br>" not in html
    assert "and 10 more columns" in html


def test_bytes_and_nested_values(memory: stoker.Lake) -> None:
    table = pa.table(
        {
            "bytes": pa.array([b"abc", b"", b"\xff" * 100], pa.large_binary()),
            "struct": pa.array([{"a": 1, "b": [None, "x"]}] * 3),
            "when": pa.array([0, 2**62, None], pa.timestamp("us")),
        }
    )
    memory.create_table("t", table)
    html = shown(memory.sql("SELECT * FROM t"))
    for text in ("3 bytes: 616263<", "0 bytes<", "100 bytes: ffffffffffffffff…<", "{a: 1, b: [NULL, x]}", "1970-01-01"):
        assert text in html
    assert str(2**62) in html  # a time that Python does not have
    words = [f"w{index}" for index in range(9)]
    assert "w7, … (9 values)]" in shown(memory.sql("SELECT $1 AS x", params=[words]))


def test_vectors_are_lines(memory: stoker.Lake) -> None:
    vectors = np.array([[0, 1, -2], [1, np.nan, 3], [np.nan] * 3, [5, 5, 5], [3e38, -3e38, 0]], np.float32)
    memory.create_table("t", {"v": vectors})
    html = shown(memory.sql("SELECT v FROM t"))
    assert "float32[3]" in html
    assert "<title>3 values from -2 to 1</title>" in html
    assert "<title>3 values from 1 to 3, 1 not finite</title>" in html
    assert "<title>3 values from 5 to 5</title>" in html
    assert "<title>3 values from -3e+38 to 3e+38</title>" in html
    assert html.count("<svg") == 4
    assert "nan" in html
    points = re.findall(r'points="([^"]*)"', html)
    assert all(0 <= float(y) <= 28 for line in points for y in re.findall(r",([-\d.]+)", line))
    lists = shown(memory.sql("SELECT [1, 2, 3, 4] AS a, [7] AS b, [1, NULL] AS c"))
    assert "<title>4 values from 1 to 4</title>" in lists
    assert "[7]" in lists
    assert "[1, NULL]" in lists


def test_many_values_of_a_vector_are_few_points(memory: stoker.Lake) -> None:
    memory.create_table("t", {"v": np.arange(5000, dtype=np.float32).reshape(1, 5000)})
    html = shown(memory.sql("SELECT v FROM t"))
    assert "5,000 values from 0 to 4999" in html
    (points,) = re.findall(r'points="([^"]*)"', html)
    assert len(points.split()) == 96


def test_tensors_are_images(memory: stoker.Lake) -> None:
    rows = 3
    unit = np.zeros((rows, 3, 40, 300), np.float32)
    unit[:, 0] = 1
    wide = np.zeros((rows, 8, 8, 1), np.float64)
    wide[:, 0, 0], wide[:, 0, 1], wide[:, 0, 2] = -1, 3, np.nan
    depth = np.arange(rows * 64, dtype=np.uint16).reshape(rows, 8, 8)
    columns = {
        "id": np.arange(rows),
        "bytes": np.full((rows, 3, 8, 6), 7, np.uint8),
        "unit": unit,
        "wide": wide,
        "depth": depth,
    }
    memory.create_table(
        "t", {**columns, "nothing": np.full((rows, 2, 2, 3), np.nan), "no_image": np.zeros((rows, 5, 5, 5))}
    )
    html = shown(memory.sql("SELECT * FROM t ORDER BY id LIMIT 1"))
    assert 'title="uint8[3, 8, 6]"' in html
    assert 'title="float32[3, 40, 300], shown from 0 to 1"' in html
    assert 'title="float64[8, 8, 1], shown from -1 to 3"' in html
    assert 'title="uint16[8, 8], shown from 0 to 63"' in html
    assert html.count("<img ") == 4
    assert "float64[5, 5, 5]: " in html
    pixels, floats, scaled, deep = images_in(html)
    assert (pixels.size, pixels.getpixel((0, 0))) == ((6, 8), (7, 7, 7))
    assert (floats.size, floats.getpixel((0, 0))) == ((128, 17), (255, 0, 0))
    assert [scaled.getpixel((x, 0)) for x in range(4)] == [0, 255, 0, 64]
    assert [deep.getpixel((0, 0)), deep.getpixel((7, 7))] == [0, 255]


def test_small_images_are_enlarged_and_large_ones_reduced(memory: stoker.Lake) -> None:
    files = [encoded("PNG", 8, 4), encoded("JPEG", 1000, 500), encoded("WEBP", 10, 10), encoded("PNG", 9, 9, "I;16")]
    files += [encoded("PNG", 9, 9, "P"), encoded("PNG", 9, 9, "LA"), TORN_PNG]
    memory.create_table("t", {"id": list(range(8)), "image": [*files, None]}, encoded_images=["image"])
    html = shown(memory.sql("SELECT image FROM t ORDER BY id"))
    assert "encoded image" in html
    assert html.count("<img ") == 6
    assert 'width="64" height="32" title="PNG, 8 x 4"' in html
    assert 'width="128" height="64" title="JPEG, 1000 x 500"' in html
    assert [image.format for image in images_in(html)] == ["PNG", "JPEG", "PNG", "PNG", "PNG", "PNG"]
    assert f"{len(TORN_PNG)} bytes: 89504e470d0a1a0a…</code> <small>no image that can be decoded</small>" in html
    assert html.count(">NULL<") == 1


def test_both_themes_have_colours(lake: stoker.Lake) -> None:
    html = shown(lake)
    assert "@media (prefers-color-scheme:dark)" in html
    for theme in ("true", "false"):
        assert f'[data-jp-theme-light="{theme}"] .stoker' in html
    assert html.count("--stoker-text:#e6edf3") == 2


def test_tables_show_columns_and_tags(lake: stoker.Lake) -> None:
    html = shown(lake.table("samples"))
    newest = lake.table("samples")
    assert f"<b>samples</b> version {newest.version}, {NUM_ROWS} rows" in html
    assert "tags: v1: version" in html
    text = text_of(newest)
    for cells in ("imageuint8[3, 8, 6]tensor", "embfloat32[4]vector", "namestringtext", "idint64scalar"):
        assert cells in text
    assert "60 rows" in text_of(lake.table("samples", tag="v1"))


def test_lakes_show_their_tables(memory: stoker.Lake) -> None:
    assert "no tables" in text_of(memory)
    for index in range(51):
        memory.create_table(f"t{index:02}", {"a": [1]})
    text = text_of(memory)
    assert "t49" in text
    assert "t50" not in text
    assert "first 50 of 51 tables" in text
    assert "memory://" in text


def test_plans_are_texts_with_bold_operators(lake: stoker.Lake) -> None:
    query = lake.sql("SELECT id FROM samples WHERE label = $1 ORDER BY id LIMIT 3", params=[3])
    plan = query.explain()
    assert isinstance(plan, stoker.Plan)
    assert isinstance(plan, str)
    assert plan.startswith("logical plan\n")
    html = shown(plan)
    assert re.search(r"<pre><b>logical plan</b>", html)
    assert re.search(r"\n {2,}<b>ScanExec</b>: table=samples@", html)
    for statement in ("EXPLAIN", "EXPLAIN ANALYZE", "EXPLAIN FORMAT TREE", "EXPLAIN ANALYZE FORMAT TREE"):
        shown_plan = shown(lake.sql(f"{statement} {query.sql}", params=[3]))
        assert "<b>ScanExec</b>" in shown_plan
        assert "<pre>" in shown_plan
    assert "{&quot;plan&quot;" in shown(lake.sql("EXPLAIN FORMAT JSON SELECT id FROM samples"))


def test_queries_show_text_and_parameters(lake: stoker.Lake) -> None:
    text = text_of(lake.sql("SELECT id FROM samples WHERE label = $1 AND name <> $2", params=[3, "x" * 100]))
    assert text.startswith("SELECT id FROM samples WHERE label = $1 AND name <> $2")
    assert "$1 = 3, $2 = 'xxx" in text
    assert "x…" in text


def test_columns_of_one_name_are_shown(lake: stoker.Lake) -> None:
    html = shown(lake.sql("SELECT a.id, b.id FROM samples a JOIN samples b ON a.id = b.id ORDER BY a.id"))
    assert html.count("<tr>") == 1 + 8
    assert html.count("id<br>") == html.count("id:1<br>") == 1


def test_class_balance(lake: stoker.Lake, memory: stoker.Lake) -> None:
    balance = lake.sql("SELECT image, label FROM samples WHERE label < 3 -- few\n;").class_balance("label")
    assert dict(balance) == {0: 11, 1: 10, 2: 10}
    assert (balance.column, balance.num_rows, len(balance)) == ("label", 31, 3)
    assert balance.share(0) == 11 / 31
    assert repr(balance).splitlines() == [
        "label  rows    share",
        "0        11  35.48 %",
        "1        10  32.26 %",
        "2        10  32.26 %",
    ]
    html = shown(balance)
    assert html.count("<tr>") == 1 + 3
    assert 'style="width:200px"' in html
    assert 'style="width:182px"' in html
    assert "35.48%" in html
    assert "3 classes, 31 rows" in html
    memory.create_table("t", {"word": ["a", None, None, "b"], "many": [0.5, float("nan"), 1, 2]})
    words = memory.sql("SELECT * FROM t").class_balance("word")
    assert list(words.items()) == [(None, 2), ("a", 1), ("b", 1)]
    assert repr(words).splitlines()[1].startswith("NULL ")
    assert ">NULL<" in shown(words)
    assert ">NaN<" in shown(memory.sql("SELECT many FROM t").class_balance("many"))
    empty = memory.sql("SELECT word FROM t WHERE word = 'c'").class_balance("word")
    assert (len(empty), empty.num_rows) == (0, 0)
    assert "0 classes, no rows" in text_of(empty)
    with pytest.raises(KeyError):
        empty.share("a")


def test_refused_classes(lake: stoker.Lake, memory: stoker.Lake) -> None:
    query = lake.sql("SELECT id, image, emb FROM samples")
    for column in ("image", "emb", "nothing", "ID"):
        with pytest.raises(stoker.InvalidRequestError):
            query.class_balance(column)
    with pytest.raises(stoker.InvalidRequestError, match="column is a int; it must be the name of a column"):
        query.class_balance(3)  # type: ignore[arg-type]
    memory.create_table("t", {"id": np.arange(10_001)})
    with pytest.raises(stoker.InvalidRequestError, match="column id has more than 10,000 values"):
        memory.sql("SELECT id FROM t").class_balance("id")
    few = memory.sql("SELECT id FROM t WHERE id < 60").class_balance("id")
    assert "first 50 of 60 classes" in text_of(few)
    assert repr(few).splitlines()[-1] == "and 40 more classes"


def test_image_grid(lake: stoker.Lake, memory: stoker.Lake) -> None:
    query = lake.sql("SELECT id, image, name FROM samples ORDER BY id")
    grid = query.image_grid("image", rows=2, columns=5, label="name")
    assert (len(grid), grid.columns) == (10, 5)
    assert repr(grid) == "ImageGrid('image', label='name', images=10, columns=5)"
    html = shown(grid)
    assert html.count("<img ") == html.count("<figcaption>") == 10
    assert "grid-template-columns:repeat(5,max-content)" in html
    assert "row 9" in html
    assert "row 10" not in html
    assert "<figcaption>" not in shown(query.image_grid("image"))
    files = [encoded("PNG", 8, 8), None, TORN_PNG]
    memory.create_table("t", {"id": [0, 1, 2], "image": files}, encoded_images=["image"])
    torn = shown(memory.sql("SELECT * FROM t ORDER BY id").image_grid("image", label="id"))
    assert (torn.count("<img "), torn.count(">NULL<")) == (1, 1)
    assert "no image that can be decoded" in torn
    assert "no images" in shown(memory.sql("SELECT image FROM t WHERE id > 5").image_grid("image"))


def test_refused_grids(lake: stoker.Lake) -> None:
    query = lake.sql("SELECT id, image, emb, name FROM samples")
    for column in ("id", "emb", "name"):
        with pytest.raises(stoker.InvalidRequestError, match="a grid shows encoded images, and tensors of shape"):
            query.image_grid(column)
    for options in ({"rows": 0}, {"rows": 33}, {"columns": "8"}, {"label": 3}, {"label": "nothing"}):
        with pytest.raises(stoker.InvalidRequestError):
            query.image_grid("image", **options)  # type: ignore[arg-type]


def test_errors_of_queries_are_raised(tmp_path: Path) -> None:
    lake = stoker.connect(str(tmp_path))
    lake.create_table("samples", make_columns(30))
    with pytest.raises(stoker.InvalidRequestError, match="zero"):
        lake.sql("SELECT 1 / (id - id) FROM samples")._repr_html_()
