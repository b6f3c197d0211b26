"""Which servers a cluster has, and that their own commands take the files written for them."""

from __future__ import annotations

from pathlib import Path

import pytest

import broker.config
import controller.config
import controller.namesrv.config
from mqcluster.plan import DEFAULT_MODE, Durability, Kind, Size, cluster, from_json, to_json
from remoting import properties
from remoting.address import split_address


def test_every_server_takes_its_file(tmp_path: Path) -> None:
    planned = cluster(tmp_path, Size(3, 2, 3), 20_000, Durability())
    assert [each.name for each in planned] == [
        "namesrv", "n0", "n1", "n2", "broker-a-0", "broker-a-1", "broker-a-2", "broker-b-0", "broker-b-1", "broker-b-2"]
    for each in planned:
        given = properties.parse(each.file)
        match each.kind:
            case Kind.NAMESRV:
                assert controller.namesrv.config.from_properties(given).listen_port == 20_000
            case Kind.CONTROLLER:
                config = controller.config.from_properties(given)
                controller.config.check(config)
                assert config.address == each.address
            case Kind.BROKER:
                made = broker.config.from_properties(given)
                broker.config.check(made)
                assert made.address == each.address
                assert made.all_ack_in_sync_state_set and made.min_in_sync_replicas == 2


def test_a_quick_cluster_is_so_as_a_whole_and_remembers_it(tmp_path: Path) -> None:
    planned = cluster(tmp_path, Size(), 20_000, DEFAULT_MODE, quick=True)
    for each in planned:
        assert (each.settings.get("detectionProfile") == "quick") is (each.kind is not Kind.NAMESRV)
        assert each.mode.endswith("detectionProfile=quick") is (each.kind is Kind.BROKER)
    made = broker.config.from_properties(properties.parse(planned[-1].file))
    broker.config.check(made)
    assert made.controller_heart_beat_timeout_mills == 2_000
    assert to_json(planned) != to_json(cluster(tmp_path, Size(), 20_000, DEFAULT_MODE))


def test_no_two_servers_share_a_port(tmp_path: Path) -> None:
    ports = []
    for each in cluster(tmp_path, Size(9, 26, 9), 20_000, DEFAULT_MODE):
        port = split_address(each.address)[1]
        ports += [port, port + 1, port - 2] if each.kind is Kind.BROKER else [port]
    assert len(set(ports)) == len(ports)


@pytest.mark.parametrize("port", [80, 65_500])
def test_ports_must_fit(port: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"port {port}: this cluster needs"):
        cluster(tmp_path, Size(), port, DEFAULT_MODE)


@pytest.mark.parametrize("values", [(0, 1, 1), (3, 27, 1), (3, 1, 0)])
def test_sizes_have_bounds(values: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be from 1 to"):
        Size(*values)


def test_what_is_written_down_is_read_again(tmp_path: Path) -> None:
    planned = cluster(tmp_path, Size(1, 1, 1), 20_000, DEFAULT_MODE)
    again = from_json(to_json(planned))
    assert [(each.name, each.kind, each.address, each.group) for each in again] == [
        (each.name, each.kind, each.address, each.group) for each in planned]
    with pytest.raises(ValueError, match="it describes no cluster"):
        from_json([{"name": "n0"}])
