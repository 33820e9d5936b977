# SPDX-License-Identifier: Apache-2.0
"""What `vendors.contract` promises of actions, kept by every maker of cards that can be cut."""

import msgspec
import pytest
from tests.contract.vendors import benches
from tests.contract.vendors.conftest import Library
from tests.contract.vendors.watching import watching

from gpudeck import errors
from gpudeck.vendors import calling, contract, registry

Mode = contract.PartitioningMode


@pytest.fixture
def vendor(split: benches.PartitionBench) -> contract.Vendor:
    return registry.load(split.vendor).vendor(split.settings)


@pytest.fixture
def address(vendor: contract.Vendor) -> str:
    return vendor.sites()[0].address


def removal(made: contract.MakePartition) -> contract.RemovePartition:
    return contract.RemovePartition(profile_id=made.profile_id, placement=made.placement)


def turned(*, enabled: bool) -> contract.SetPartitioning:
    return contract.SetPartitioning(enabled=enabled)


async def test_a_card_tells_its_profiles_with_places_and_engines(
    split: benches.PartitionBench, splitting: Library, address: str
) -> None:
    card = await splitting.read(address)
    assert card.dynamic
    assert card.mode is Mode.DISABLED
    profiles = {each.profile_id: each for each in card.profiles}
    small, across = profiles[split.small.profile_id], profiles[split.across.profile_id]
    assert {split.small.placement, split.beside.placement} <= set(small.placements)
    assert split.across.placement in across.placements
    assert small.copy_engines > 0
    assert across.copy_engines > small.copy_engines
    assert len(small.placements) >= small.max_instances


async def test_a_partition_is_made_where_it_was_asked_for_and_turns_the_mode_on(
    split: benches.PartitionBench, splitting: Library, address: str
) -> None:
    made = await splitting.act(address, split.beside)
    assert made is not None
    assert made.profile_id == split.beside.profile_id
    assert contract.Placement(start=made.start, size=made.size) == split.beside.placement
    assert made.uuid
    card = await splitting.read(address)
    assert (card.mode, card.partitions) == (Mode.ENABLED, (made,))


async def test_a_partition_that_is_there_is_the_answer(
    split: benches.PartitionBench, splitting: Library, address: str
) -> None:
    first = await splitting.act(address, split.small)
    assert await splitting.act(address, split.small) == first
    assert (await splitting.read(address)).partitions == (first,)


async def test_partitions_lie_side_by_side_each_with_its_own_name(
    split: benches.PartitionBench, splitting: Library, address: str
) -> None:
    first = await splitting.act(address, split.small)
    second = await splitting.act(address, split.beside)
    assert first is not None
    assert second is not None
    assert first.uuid != second.uuid
    assert (await splitting.read(address)).partitions == (first, second)


async def test_a_place_that_is_taken_is_a_conflict_and_stays_as_it_is(
    split: benches.PartitionBench, splitting: Library, address: str
) -> None:
    there = await splitting.act(address, split.small)
    with pytest.raises(errors.ConflictError) as caught:
        await splitting.act(address, split.across)
    assert caught.value.reason == "PartitionConflict"
    assert address in caught.value.message
    assert (await splitting.read(address)).partitions == (there,)


async def test_a_profile_or_a_place_that_the_card_lacks_is_refused_and_the_mode_stays_off(
    split: benches.PartitionBench, splitting: Library, address: str
) -> None:
    elsewhere = contract.Placement(start=61, size=1)
    for wrong in (
        msgspec.structs.replace(split.small, profile_id=9999),
        msgspec.structs.replace(split.small, placement=elsewhere),
    ):
        with pytest.raises(errors.UnsupportedError) as caught:
            await splitting.act(address, wrong)
        assert caught.value.reason == "PartitionUnsupported"
    assert (await splitting.read(address)).mode is Mode.DISABLED


async def test_a_partition_that_fails_half_way_leaves_nothing(
    split: benches.PartitionBench, splitting: Library, address: str
) -> None:
    split.fail_making(0)
    with pytest.raises(errors.UnavailableError):
        await splitting.act(address, split.small)
    card = await splitting.read(address)
    assert (card.mode, card.partitions) == (Mode.DISABLED, ())
    split.mend_making(0)
    assert await splitting.act(address, split.small) is not None


async def test_removing_takes_that_partition_alone_and_may_be_repeated(
    split: benches.PartitionBench, splitting: Library, address: str
) -> None:
    await splitting.act(address, split.small)
    other = await splitting.act(address, split.beside)
    for _ in range(2):
        assert await splitting.act(address, removal(split.small)) is None
        assert (await splitting.read(address)).partitions == (other,)
    await splitting.act(address, removal(split.across))  # Another profile lies there.
    assert (await splitting.read(address)).partitions == (other,)


async def test_removing_what_never_was_succeeds_with_the_mode_off(
    split: benches.PartitionBench, splitting: Library, address: str
) -> None:
    assert await splitting.act(address, removal(split.small)) is None
    assert (await splitting.read(address)).mode is Mode.DISABLED


async def test_a_partition_in_use_is_not_removed(
    split: benches.PartitionBench, splitting: Library, address: str
) -> None:
    made = await splitting.act(address, split.small)
    split.work(0)
    with pytest.raises(errors.BusyError) as caught:
        await splitting.act(address, removal(split.small))
    assert caught.value.reason == "PartitionInUse"
    assert (await splitting.read(address)).partitions == (made,)
    split.rest(0)
    await splitting.act(address, removal(split.small))
    assert (await splitting.read(address)).partitions == ()


async def test_the_mode_follows_and_may_be_asked_for_again(
    splitting: Library, address: str
) -> None:
    for enabled, mode in ((True, Mode.ENABLED), (False, Mode.DISABLED)):
        for _ in range(2):
            await splitting.act(address, turned(enabled=enabled))
            assert (await splitting.read(address)).mode is mode


async def test_the_mode_stays_on_while_there_are_partitions(
    split: benches.PartitionBench, splitting: Library, address: str
) -> None:
    made = await splitting.act(address, split.small)
    with pytest.raises(errors.BusyError) as caught:
        await splitting.act(address, turned(enabled=False))
    assert caught.value.reason == "CardPartitioned"
    card = await splitting.read(address)
    assert (card.mode, card.partitions) == (Mode.ENABLED, (made,))


async def test_a_card_in_use_keeps_its_mode(
    split: benches.PartitionBench, splitting: Library, address: str
) -> None:
    split.work(0)
    with pytest.raises(errors.BusyError) as caught:
        await splitting.act(address, split.small)
    assert caught.value.reason == "CardInUse"
    split.rest(0)
    assert (await splitting.read(address)).mode is Mode.DISABLED


async def test_a_lost_card_has_no_partitions_to_remove(
    split: benches.PartitionBench, splitting: Library, address: str
) -> None:
    await splitting.act(address, split.small)
    split.lose(0)
    assert await splitting.act(address, removal(split.small)) is None
    with pytest.raises(errors.UnavailableError) as caught:
        await splitting.act(address, split.small)
    assert caught.value.reason == "GpuLost"


async def test_a_container_gets_the_nodes_of_its_partition_and_of_no_other(
    split: benches.PartitionBench, splitting: Library, vendor: contract.Vendor, address: str
) -> None:
    parts = [await splitting.act(address, each) for each in (split.small, split.beside)]
    card = await splitting.read(address)
    uses = [contract.Use(card=card, partition=part) for part in parts]
    given = vendor.inject(uses, driver_version="1", hook_path="")
    one, other = ({node.path for node in use.edits.device_nodes} for use in given.uses)
    assert len(one & other) == 1  # The card's own node.
    assert one - other
    assert other - one


async def test_an_action_is_published_before_its_answer(split: benches.PartitionBench) -> None:
    async with watching(split.vendor, split.settings) as watched:
        await watched.until(lambda: True)
        address = watched.card(0).site.address
        made = await watched.supervisor.act(address, split.small)
        reading = watched.card(0).reading
        assert reading is not None
        assert reading.partitions == (made,)
        await watched.supervisor.act(address, removal(split.small))
        reading = watched.card(0).reading
        assert reading is not None
        assert reading.partitions == ()


async def test_a_card_that_hangs_in_an_action_is_put_aside_and_the_other_changed(
    split: benches.PartitionBench,
) -> None:
    async with watching(split.vendor, split.settings) as watched:
        await watched.until(lambda: True)
        first, second = (card.site.address for card in watched.published[-1].cards[:2])
        split.hang(0)
        with pytest.raises(errors.UnavailableError):
            await watched.supervisor.act(first, split.small)
        assert watched.card(0).health.reason == "Hung"
        assert await watched.supervisor.act(second, split.small) is not None
        with pytest.raises(errors.UnavailableError) as caught:
            await watched.supervisor.act(first, split.small)
        assert not isinstance(caught.value, calling.HungError)
        assert (caught.value.reason, first in caught.value.message) == ("CardNotReady", True)
