from bursar.objects.decode import ManifestError, join


def test_a_line_names_everything_that_is_known() -> None:
    error = ManifestError("is wrong", "spec.min.cpu", subject="ElasticQuota a/q", source="q.yaml", document=2, line=7)
    assert str(error) == "q.yaml: document 2: line 7: ElasticQuota a/q: spec.min.cpu: is wrong"


def test_outer_layers_add_but_never_overwrite() -> None:
    error = ManifestError("is wrong", "spec", subject="Pod a/b").located("f.yaml", 3, "Pod x/y").located("g.yaml", 4)
    assert (error.source, error.document, error.subject, error.path) == ("f.yaml", 3, "Pod a/b", "spec")


def test_inside_puts_the_path_into_a_larger_one() -> None:
    error = ManifestError("is wrong", "spec", line=4).inside("items[2]")
    assert str(error) == "line 4: items[2].spec: is wrong"
    assert ManifestError("is wrong").inside("items[2]").path == "items[2]"


def test_join_knows_keys_and_indices() -> None:
    assert [join("", "a"), join("a", "b"), join("a", "[0]"), join("a", "")] == ["a", "a.b", "a[0]", "a"]


def test_it_is_always_one_printable_line_of_bounded_length() -> None:
    message = str(ManifestError("two\nlines\x00", "k" * 10_000))
    assert message.isprintable()
    assert len(message) < 1000
    assert message.endswith("two\\nlines\\x00")
