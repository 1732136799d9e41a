"""The cluster's secret: where it is found, and that nothing shows it."""

from pathlib import Path

import pytest

from exo.ops.errors import SettingsError
from exo.ops.layers import Loaded, load_settings
from exo.ops.secret import check_secret, find_secret, forget_secret, new_secret, store_secret


def load(home: Path, variables: dict[str, str] | None = None, **flags: object) -> Loaded:
    return load_settings({"data_dir": home, **flags}, variables or {})


def find(loaded: Loaded) -> tuple[str, str]:
    found = find_secret(loaded.settings, loaded.paths)
    return found.text, found.origin


def test_every_secret_is_new_and_256_bits_long() -> None:
    drawn = {new_secret() for _ in range(50)}
    assert len(drawn) == 50
    assert {check_secret(secret, source="x") for secret in drawn} == drawn
    assert {len(secret) for secret in drawn} == {len("exo1-") + 52}


def test_what_people_copy_is_read_however_it_is_spelt() -> None:
    secret = new_secret()
    assert check_secret(f"  {secret.upper()}\n", source="x") == secret


def test_the_environment_wins_over_the_named_file_over_the_stored_one(tmp_path: Path) -> None:
    one, two, three = new_secret(), new_secret(), new_secret()
    loaded = load(tmp_path)
    assert find(loaded) == ("", "")
    store_secret(loaded.paths, one)
    assert find(loaded) == (one, str(tmp_path / "cluster.secret"))
    named = tmp_path / "named"
    named.write_text(two + "\n")
    assert find(load(tmp_path, cluster_secret_file=named)) == (two, str(named))
    variables = {"EXO_CLUSTER_SECRET": three, "EXO_CLUSTER_SECRET_FILE": str(named)}
    assert find(load(tmp_path, variables)) == (three, "environment variable EXO_CLUSTER_SECRET")


def test_the_stored_secret_is_its_owners_only(tmp_path: Path) -> None:
    paths = load(tmp_path / "new").paths
    store_secret(paths, new_secret())
    assert paths.secret_file.stat().st_mode & 0o777 == 0o600
    assert forget_secret(paths)
    assert not forget_secret(paths)
    assert find(load(tmp_path / "new")) == ("", "")


@pytest.mark.parametrize("text", ["hunter2hunter2hunter2", "exo1-short", "exo1-" + "0" * 52])
def test_what_is_no_secret_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        find_secret(load(tmp_path, {"EXO_CLUSTER_SECRET": text}).settings, load(tmp_path).paths)
    assert "EXO_CLUSTER_SECRET" in str(caught.value)
    assert "exo cluster secret" in str(caught.value)
    assert text not in str(caught.value)


def test_a_named_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nowhere"):
        find(load(tmp_path, cluster_secret_file=tmp_path / "nowhere"))


def test_a_found_secret_does_not_show_itself(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    store_secret(loaded.paths, secret := new_secret())
    assert secret not in repr(find_secret(loaded.settings, loaded.paths))
