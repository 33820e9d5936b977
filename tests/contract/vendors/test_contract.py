# SPDX-License-Identifier: Apache-2.0
"""What `vendors.contract` promises, kept by every maker."""

import msgspec
import pytest
from tests.contract.vendors import benches
from tests.contract.vendors.conftest import Library

from gpudeck import errors
from gpudeck.vendors import calling, contract


def addresses(vendor: contract.Vendor) -> list[str]:
    return [site.address for site in vendor.sites()]


def test_the_bus_shows_every_card_once_in_order(
    bench: benches.Bench, vendor: contract.Vendor
) -> None:
    sites = vendor.sites()
    assert len(sites) == bench.cards
    assert [site.address for site in sites] == sorted({site.address for site in sites})
    assert all(site.served for site in sites)
    assert list(vendor.sites()) == list(sites)


async def test_the_driver_opens_and_names_its_versions(library: Library) -> None:
    state = await library.open()
    assert (state.ready, state.reason) == (True, "DriverReady")
    assert state.version
    assert state.api_version


async def test_a_driver_that_is_away_is_an_answer_and_no_error(
    bench: benches.Bench, library: Library
) -> None:
    bench.take_driver_away()
    state = await library.open()
    assert (state.ready, state.reason) == (False, "DriverNotLoaded")
    assert state.message.endswith(".")


async def test_cards_tell_who_they_are(library: Library, vendor: contract.Vendor) -> None:
    await library.open()
    readings = [await library.read(address) for address in addresses(vendor)]
    assert [reading.address for reading in readings] == addresses(vendor)
    assert len({reading.uuid for reading in readings}) == len(readings)
    assert {reading.minor for reading in readings} == set(range(len(readings)))
    for reading in readings:
        assert reading.product_name
        assert reading.architecture
        assert reading.compute_api
        assert reading.compute_capability
        assert reading.faults == ()
        assert reading.mode is not contract.PartitioningMode.ENABLED


async def test_equal_states_give_equal_readings(library: Library, vendor: contract.Vendor) -> None:
    await library.open()
    address = addresses(vendor)[0]
    first, second = await library.read(address), await library.read(address)
    assert msgspec.structs.replace(first, lifetime=None) == msgspec.structs.replace(
        second, lifetime=None
    )
    assert (first.lifetime or 0) <= (second.lifetime or 0)


async def test_a_card_that_is_not_there_is_not_found(library: Library) -> None:
    await library.open()
    with pytest.raises(errors.NotFoundError) as caught:
        await library.read("00fe:1f:00.0")
    assert "00fe:1f:00.0" in caught.value.message


async def test_a_lost_card_fails_by_name_and_the_other_is_read(
    bench: benches.Bench, library: Library, vendor: contract.Vendor
) -> None:
    await library.open()
    first, second = addresses(vendor)
    await library.read(first)
    bench.lose(0)
    with pytest.raises(errors.UnavailableError) as caught:
        await library.read(first)
    assert caught.value.reason == "GpuLost"
    assert (await library.read(second)).faults == ()
    bench.find(0)
    assert (await library.read(first)).uuid


async def test_damage_that_lasts_is_a_fault_of_the_reading(
    bench: benches.Bench, library: Library, vendor: contract.Vendor
) -> None:
    bench.damage(1)
    await library.open()
    first, second = addresses(vendor)
    assert (await library.read(first)).faults == ()
    assert (await library.read(second)).faults[0].reason == "RowRemapPending"


async def test_a_hung_card_passes_its_deadline_and_the_call_is_named(
    bench: benches.Bench, library: Library, vendor: contract.Vendor
) -> None:
    await library.open()
    address = addresses(vendor)[0]
    await library.read(address)
    bench.hang(0)
    with pytest.raises(calling.HungError) as caught:
        await library.read(address, seconds=0.3)
    assert library.process.entered in caught.value.message
    assert "0.3 s" in caught.value.message
    assert await library.process.kill()


async def test_opening_does_not_touch_a_hung_card(
    bench: benches.Bench, library: Library, vendor: contract.Vendor
) -> None:
    bench.hang(0)
    assert (await library.open()).ready
    assert (await library.read(addresses(vendor)[1])).uuid


async def test_a_hardware_error_names_its_card_and_its_fault(
    bench: benches.Bench, library: Library, vendor: contract.Vendor
) -> None:
    await library.open()
    for address in addresses(vendor):
        await library.read(address)
    event = await library.event_of(bench.raise_hardware_error(1))
    assert event.address == addresses(vendor)[1]
    assert event.fault is not None
    assert event.fault.reason == "HardwareXid"


async def test_an_application_error_is_told_without_a_fault(
    bench: benches.Bench, library: Library, vendor: contract.Vendor
) -> None:
    await library.open()
    for address in addresses(vendor):
        await library.read(address)
    event = await library.event_of(bench.raise_application_error(0))
    assert (event.address, event.fault) == (addresses(vendor)[0], None)


async def test_edits_are_the_same_each_time_and_each_card_has_its_own(
    library: Library, vendor: contract.Vendor
) -> None:
    version = (await library.open()).version
    cards = [await library.read(address) for address in addresses(vendor)]
    uses = [contract.Use(card=card) for card in cards]
    first = vendor.inject(uses, driver_version=version, hook_path="/opt/hook")
    assert first == vendor.inject(uses, driver_version=version, hook_path="/opt/hook")
    assert len(first.uses) == len(cards)
    nodes = [{node.path for node in use.edits.device_nodes} for use in first.uses]
    assert all(nodes)
    assert not nodes[0] & nodes[1]
    alone = vendor.inject(uses[1:], driver_version=version, hook_path="/opt/hook")
    assert alone.uses == first.uses[1:]
    assert alone.shared == first.shared


async def test_without_a_hook_program_there_are_no_hooks(
    library: Library, vendor: contract.Vendor
) -> None:
    version = (await library.open()).version
    cards = [await library.read(address) for address in addresses(vendor)]
    uses = [contract.Use(card=card) for card in cards]
    given = vendor.inject(uses, driver_version=version, hook_path="")
    every = [given.shared, *(use.edits for use in given.uses)]
    assert [edits.hooks for edits in every] == [()] * (1 + len(cards))


async def test_a_partitioned_card_cannot_be_given_whole(
    library: Library, vendor: contract.Vendor
) -> None:
    version = (await library.open()).version
    card = await library.read(addresses(vendor)[0])
    partitioned = msgspec.structs.replace(card, mode=contract.PartitioningMode.ENABLED)
    with pytest.raises(errors.UnsupportedError) as caught:
        vendor.inject([contract.Use(card=partitioned)], driver_version=version, hook_path="")
    assert caught.value.reason == "CardPartitioned"
    assert card.address in caught.value.message
