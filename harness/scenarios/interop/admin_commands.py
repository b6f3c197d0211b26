"""The Java ``mqadmin`` against our controllers: each command of the controller, exit code and words."""

from __future__ import annotations

from harness.scenarios.interop.failover import GROUP, cluster
from harness.scenarios.interop.scenario import Stage, expect, scenario
from harness.scenarios.interop.watch import tool


@scenario("5.5.0")
async def the_java_mqadmin_against_our_controllers(stage: Stage) -> None:
    """Each of Java's commands for controllers, from getControllerMetaData to cleanBrokerMetadata, ends well.

    getControllerMetaData, getSyncStateSet, getControllerConfig, updateControllerConfig, getBrokerEpoch, electMaster,
    cleanBrokerMetadata.
    """
    async with cluster(stage, 2) as made:
        address, namesrv = made.addresses[0], made.namesrv.address
        before = await made.all_in_sync("before")
        every = ";".join(made.addresses)
        slave = next(broker_id for broker_id in before.in_sync if broker_id != before.master)
        for arguments, words in (
            (("getControllerMetaData", "-a", address), "#ControllerLeaderAddress"),
            (("getSyncStateSet", "-a", address, "-b", GROUP), "SyncStateSetNums"),
            (("getSyncStateSet", "-a", address, "-n", namesrv, "-c", "DefaultCluster"), "SyncStateSetNums"),
            (("getControllerConfig", "-a", every), "controllerDLegerGroup"),
            (("updateControllerConfig", "-a", every, "-k", "notifyBrokerRoleChanged", "-v", "true"), "success"),
            (("getBrokerEpoch", "-n", namesrv, "-b", GROUP), "#Epoch"),
            (("electMaster", "-a", address, "-b", str(slave), "-bn", GROUP, "-c", "DefaultCluster"), "#MasterEpoch"),
        ):
            run = await tool(stage, *arguments)
            expect(run.ok and words in run.stdout, str(run))
            stage.say(f"mqadmin {arguments[0]}: ok")
        after = await made.all_in_sync("elected by hand")
        expect(after.master == slave, f"broker {slave} was designated: {after}")
        victim = made.by_address(before.master_address)
        await victim.kill()
        run = await tool(stage, "cleanBrokerMetadata", "-a", address, "-bn", GROUP, "-c", "DefaultCluster",
                            "-b", str(before.master))
        expect(run.ok, str(run))
        run = await tool(stage, "getSyncStateSet", "-a", address, "-b", GROUP)
        expect(f"brokerId={before.master}," not in run.stdout, str(run))
