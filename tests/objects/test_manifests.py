from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bursar.objects.decode import ManifestError
from bursar.objects.manifests import Document, load_path, load_text


def bodies(text: str, source: str = "") -> list[dict[str, object]]:
    return [document.body for document in load_text(text, source)]


def refusal(text: str, source: str = "f.yaml") -> str:
    with pytest.raises(ManifestError) as caught:
        load_text(text, source)
    return str(caught.value)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("n", "n"),
        ("true", True),
        ("False", False),
        ("2024-01-01", "2024-01-01"),
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("1:30", "1:30"),
        ("1e3", 1000.0),
        ("1_000", "1_000"),
        ("0x1F", 31),
        ("010", 8),
        ("-010", -8),
        ("0o17", 15),
        ("0b11", 3),
        ("+7", 7),
        (".5", 0.5),
        ("5.", 5.0),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("~", None),
        ("", None),
        ("null", None),
        ("500m", "500m"),
        ("4Gi", "4Gi"),
        ("'1'", "1"),
        ('"true"', "true"),
        ("!!str 1", "1"),
        ("=", "="),
    ],
)
def test_scalar_means_what_it_means_to_kubernetes(written: str, value: object) -> None:
    [body] = bodies(f"a: {written}")
    assert body == {"a": value}
    assert type(body["a"]) is type(value)


def test_keys_are_text_as_written() -> None:
    assert bodies("on: 1\n1.50: 2\ntrue: 3\n2024-01-01: 4") == [{"on": 1, "1.50": 2, "true": 3, "2024-01-01": 4}]


def test_documents_are_numbered_and_empty_ones_left_out() -> None:
    found = load_text("# licence\n---\na: 1\n---\n---\n# nothing\n---\nb: 2\n", "f.yaml")
    assert [(document.number, document.body) for document in found] == [(1, {"a": 1}), (4, {"b": 2})]


@pytest.mark.parametrize("text", ["", "\n", "---\n", "# only a comment\n"])
def test_nothing_gives_no_documents(text: str) -> None:
    assert load_text(text) == []


def test_json_may_have_several_documents() -> None:
    assert bodies('{"a": 1}\n{"b": "\\ud83d\\ude00"}\n', "x.json") == [{"a": 1}, {"b": "😀"}]


def test_yaml_may_start_with_a_brace() -> None:
    assert bodies("{a: 1, b: [x, y]}\n---\nc: 2") == [{"a": 1, "b": ["x", "y"]}, {"c": 2}]


def test_json_text_is_read_as_json_without_a_file_name() -> None:
    assert bodies('{\n\t"a": "\\ud83d\\ude00"}') == [{"a": "😀"}]


def test_lists_are_taken_apart() -> None:
    text = """
kind: List
apiVersion: v1
items:
- {kind: Pod, apiVersion: v1}
- kind: NodeList
  apiVersion: v1
  items: [{metadata: {name: n1}}]
- {kind: PodList, apiVersion: v1, items: }
"""
    found = load_text(text, "f.yaml")
    assert found == [
        Document("f.yaml", 1, {"kind": "Pod", "apiVersion": "v1"}, "items[0]"),
        Document("f.yaml", 1, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}, "items[1].items[0]"),
    ]


def test_an_alias_is_a_copy() -> None:
    [body] = bodies("a: &x {k: [1]}\nb: *x\n")
    assert body == {"a": {"k": [1]}, "b": {"k": [1]}}
    assert body["a"] is not body["b"]


def test_merge_keys_fill_in_what_is_missing() -> None:
    text = "x: &x {a: 1, b: 1}\ny: &y {b: 2, c: 2}\nz: {<<: [*x, *y], a: 0}\nw: {a: 9, <<: *y}\n"
    [body] = bodies(text)
    assert body["z"] == {"a": 0, "b": 1, "c": 2}
    assert body["w"] == {"a": 9, "b": 2, "c": 2}


def test_an_alias_may_be_a_key() -> None:
    assert bodies("a: &x name\n*x : 1\n") == [{"a": "name", "name": 1}]


BOMB = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else 'x'] * 10)}]" for n in range(9))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: b: c", "f.yaml: document 1: line 1: not YAML: mapping values are not allowed in this context"),
        ("ok: 1\n---\n\ta: 1", "f.yaml: document 2: line 3: not YAML: found character that cannot start any token"),
        ("a: 1\n---\nb: 1\na: 2\nb: 3", "f.yaml: document 2: line 5: the key 'b' is given twice"),
        ("- a", "f.yaml: document 1: an object must be a mapping, not a list"),
        ("just text", "f.yaml: document 1: an object must be a mapping, not 'just text'"),
        ("kind: List\nitems: 5", "f.yaml: document 1: items: expected a list"),
        ("kind: List\nitems: [5]", "f.yaml: document 1: items[0]: an object must be a mapping, not 5"),
        ("a: &a [*a]", "f.yaml: document 1: line 1: the alias 'a' stands for nothing, or for itself"),
        ("a: *b", "f.yaml: document 1: line 1: the alias 'b' stands for nothing, or for itself"),
        ("a: !!python/name:os.system", "line 1: the tag 'tag:yaml.org,2002:python/name:os.system' is not known"),
        ("a: !!timestamp 2024-01-01", "the tag 'tag:yaml.org,2002:timestamp' is not known"),
        ("a: !!set {x}", "the tag 'tag:yaml.org,2002:set' is not known"),
        ("a: 1e999", "f.yaml: document 1: line 1: '1e999' is out of the range of numbers"),
        ("a: " + "9" * 5000, "is out of the range of numbers"),
        ("[" * 100_000, "f.yaml: document 1: line 1: nested deeper than 100 levels"),
        ("? [a]\n: b", "line 1: a key must be text, not a list or a mapping"),
        ("? {a: 1}\n: b", "line 1: a key must be text, not a list or a mapping"),
        ("~: 1", "line 1: a key is missing or null"),
        ("a: 1\n<<: 5", "line 2: '<<' merges mappings only"),
        ("a: &x [1]\n*x : 1", "line 2: a key must be text, and given once"),
        ("a: \x07", "f.yaml: not YAML: unacceptable character #x0007"),
        (BOMB, "aliases stand for more than 100000 values or 100 levels"),
    ],
)
def test_malformed_yaml_is_one_line_with_its_place(text: str, problem: str) -> None:
    message = refusal(text)
    assert problem in message
    assert message.isprintable()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": 1,}', "f.json: line 1: not JSON: Expecting property name"),
        ('{"a": 1}\n{"a": 1, "a": 2}', "f.json: document 2: the key 'a' is given twice"),
        ('{"a": NaN}', "f.json: document 1: NaN is not a number"),
        ('{"a": 1e999}', "'1e999' is out of the range of numbers"),
        ("a: 1", "f.json: line 1: not JSON: Expecting value (column 1)"),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", "f.json: document 1: nested deeper than 100 levels"),
        ('{"a": ' + "[" * 200 + "]" * 200 + "}", "f.json: document 1: nested deeper than 100 levels"),
        ('{"a": ' + "9" * 5000 + "}", "is out of the range of numbers"),
    ],
)
def test_malformed_json_is_one_line_with_its_place(text: str, problem: str) -> None:
    assert problem in refusal(text, "f.json")


def test_deep_structures_cannot_be_made_of_aliases() -> None:
    rows = ["a0: &a0 " + "[" * 90 + "]" * 90]
    rows += [f"a{n}: &a{n} " + "[" * 90 + f"*a{n - 1}" + "]" * 90 for n in range(1, 40)]
    assert "100 levels" in refusal("\n".join(rows))


def test_folder_gives_its_files_by_name(tmp_path: Path) -> None:
    (tmp_path / "b.yml").write_text("n: 2")
    (tmp_path / "a.yaml").write_text("n: 1")
    (tmp_path / "c.json").write_text('{"n": 3}')
    (tmp_path / "notes.txt").write_text("no manifest")
    (tmp_path / "sub.yaml").mkdir()
    found = load_path(tmp_path)
    assert [document.body["n"] for document in found] == [1, 2, 3]
    assert found[0].source == str(tmp_path / "a.yaml")


def test_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbfa: 1")
    assert load_path(str(tmp_path / "a.yaml"))[0].body == {"a": 1}


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "latin.yaml").write_bytes(b"a: \xff")
    for path, problem in [
        (tmp_path / "missing.yaml", "cannot be read: No such file or directory"),
        (tmp_path / "latin.yaml", "is not UTF-8 text"),
        (Path("a\0b"), "cannot be read"),
    ]:
        with pytest.raises(ManifestError) as caught:
            load_path(path)
        assert problem in str(caught.value)


def test_folder_without_manifests_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="the folder has no file that ends in"):
        load_path(tmp_path)


@settings(max_examples=300)
@given(st.text("ab:-[]{}&*!<>'\"#,?|~ \n\t01.e", max_size=40), st.sampled_from(["f.yaml", "f.json", ""]))
def test_no_text_raises_anything_else(text: str, source: str) -> None:
    with suppress(ManifestError):
        load_text(text, source)
