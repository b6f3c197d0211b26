"""Keys that ``mqbroker -m`` prints: those that Java marks with ``@ImportantField``.

As ``BrokerConfig`` and ``MessageStoreConfig`` of RocketMQ 5.5.0 have them. A table, and nothing of who reads it.
"""

from __future__ import annotations

from typing import Final

_NAMES: Final = """
accessMessageInMemoryMaxRatio aclEnable allAckInSyncStateSet autoCreateSubscriptionGroup autoCreateTopicEnable
brokerIP1 brokerRole cleanFileForciblyEnable commitIntervalCommitLog deleteFileBatchMax deleteWhen
disappearTimeAfterStart dispatchFromSenderThread enableAutoInSyncReplicas enableCleanExpiredOffset
enableRunningFlagsInFlush fetchNameSrvAddrByDnsLookup fetchNamesrvAddrByAddressServer fileReservedTime
flushCommitLogTimed flushDiskType flushIntervalCommitLog haFlowControlEnable haMasterAddress inSyncReplicas listenPort
maxTransferBytesOnMessageInDisk maxTransferBytesOnMessageInMemory maxTransferCountOnMessageInDisk
maxTransferCountOnMessageInMemory messageIndexEnable messageIndexSafe minInSyncReplicas msgTraceTopicName namesrvAddr
recoverConcurrently rejectTransactionMessage storePathBrokerIdentity storePathCommitLog storePathDLedgerCommitLog
storePathEpochFile storePathRootDir storeType totalReplicas traceTopicEnable transactionCheckInterval
transactionCheckMax transactionTimeOut transientStorePoolEnable wakeCommitWhenPutMessage wakeFlushWhenPutMessage
writeWithoutMmap
"""

IMPORTANT: Final = frozenset(_NAMES.split())
