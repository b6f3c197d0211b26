"""Keys of a Java broker that nothing here depends on, with its defaults: threads, buffers, caches, features to come.

As ``BrokerConfig``, ``MessageStoreConfig``, ``NettyServerConfig``, ``NettyClientConfig`` and ``AuthConfig`` of RocketMQ
5.5.0 have them, and four that sample files name and Java does not read. A table, and nothing of who reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from remoting.daemon.keys import Missing

_DEFAULTS: Final = """
abortFile= accessMessageInMemoryHotRatio=26 accountStatsEnable=true accountStatsPrintZeroValues=true
ackMessageThreadPoolNums=16 ackThreadPoolQueueCapacity=100000 aclCacheExpiredSecond=600 aclCacheMaxNum=1000
aclCacheRefreshSecond=60 aclEnable=false adminBrokerThreadPoolNums=16 adminBrokerThreadPoolQueueCapacity=10000
allowRecallWhenBrokerNotWriteable=true appendAckAsync=false appendCkAsync=false appendTopicForTimerDeleteKey=false
asyncSendEnable=true authConfigPath= authenticationEnabled=false authenticationMetadataProvider=
authenticationProvider= authenticationStrategy= authenticationWhitelist= authorizationEnabled=false
authorizationMetadataProvider= authorizationProvider= authorizationStrategy= authorizationWhitelist=
autoDeleteUnusedStats=true autoMessageVersionOnTopicLen=true batchDispatchRequestThreadPoolNums=16
bitMapLengthConsumeQueueExt=64 bottomMostCompressionTypeForConsumeQueueStore=zstd broadcastOffsetExpireMaxSecond=300
broadcastOffsetExpireSecond=120 brokerConfigPath= cgColdReadThreshold=3145728
channelNotActiveInterval=60000 checkCommitLogOffsetOnRecover=false checkCRCOnRecover=true
checkSyncStateSetPeriod=5000 cleanOfflineBrokerInterval=30000 cleanResourceInterval=10000
cleanRocksDBDirtyCQIntervalMin=60 cleanSwapedMapInterval=300000 clientAsyncSemaphoreValue=65535
clientCallbackExecutorThreads=2 clientChannelMaxIdleTimeSeconds=120 clientCloseSocketIfTimeout=true
clientManagerThreadPoolQueueCapacity=1000000 clientManageThreadPoolNums=32 clientOnewaySemaphoreValue=65535
clientPooledByteBufAllocatorEnable=false clientSocketRcvBufSize=0 clientSocketSndBufSize=0 clientWorkerThreads=4
coldCtrStrategyEnable=false coldDataFlowControlEnable=false coldDataScanEnable=false
combineAssignOffsetCQType=default combineCQEnableCheckSelf=false combineCQLoadingCQTypes=default;defaultRocksDB
combineCQMaxExtraSearchCommitLogFiles=3 combineCQPreferCQType=default combineCQUseRocksdbForLmq=false
commercialBaseCount=1 commercialSizePerMsg=4096 commitCommitLogLeastPages=4 commitCommitLogThoroughInterval=200
commitIntervalCommitLog=200 commitLogForceSwapMapInterval=43200000 commitLogRecoverMaxNum=10
commitLogSwapMapInterval=3600000 commitLogSwapMapReserveFileNum=100 compactionCqMappedFileSize=10485760
compactionMappedFileSize=104857600 compactionScheduleInternal=900000 compactionThreadNum=6
configManagerVersion=v1 configName= connectTimeoutMillis=3000
consumerManagerThreadPoolQueueCapacity=1000000 consumerManageThreadPoolNums=32
correctLogicMinOffsetForceInterval=300000 correctLogicMinOffsetSleepInterval=1 dataReadAheadEnable=true
debugLockEnable=false
deleteCommitLogFilesInterval=100 deleteConsumeQueueFilesInterval=100 deleteFileBatchMax=10
destroyMapedFileIntervalForcibly=120000 disableCallbackExecutor=false disableNettyWorkerGroup=false
disappearTimeAfterStart=-1 diskFallRecorded=true dispatchCqCacheNum=4096 dispatchCqThreads=10
dispatchFromSenderThread=false dLegerGroup= dLegerPeers= dLegerSelfId= duplicationEnable=false
enableAcceleratedRecovery=false enableAsyncReput=true enableBatchPush=false enableBroadcastOffsetStore=true
enableBuildConsumeQueueConcurrently=false enableCalcFilterBitMap=false enableCleanExpiredOffset=false
enableCompaction=true enableConnectionMetrics=true enableConsumeQueueExt=false
enabledAppendPropCRC=false enableDetailStat=true enableDLegerCommitLog=false enableFastChannelEventProcess=false
enableLagAndDlqMetrics=true enableLiteEventMode=true enableLitePopLog=false enableLmq=false enableLmqQuota=false
enableLmqStats=false enableLogConsumeQueueRepeatedlyBuildWhenRecover=false enableMessageStoreMetrics=true
enableMultiDispatch=false enableNetWorkFlowControl=false
enableNotifyAfterPopOrderLockRelease=true enableNotifyBeforePopCalculateLag=true enablePopBatchAck=false
enablePopBufferMerge=false enablePopLog=false enablePopMessageThreshold=false enablePopMetrics=true
enableReconnectForGoAway=true enableRegisterProducer=true
enableRemotingMetrics=true enableRequestMetrics=true enableRocksDBLog=false
enableRunningFlagsInFlush=false enableScheduleAsyncDeliver=false enableScheduleMessageStats=true
enableSingleTopicRegister=false enableSkipLongAwaitingAck=false
enableSplitRegistration=false enableStatsMetrics=true enableTransactionMetrics=true
endTransactionPoolQueueCapacity=100000 endTransactionThreadPoolNums=12 estimateAccumulation=true
expectConsumerNumUseFilter=32 fastFailIfNoBufferInStorePool=false fetchControllerAddrByDnsLookup=false
flushCommitLogTimed=true flushConsumeQueueLeastPages=2
flushConsumeQueueThoroughInterval=60000 flushConsumerOffsetHistoryInterval=60000 flushIntervalConsumeQueue=1000
flushLeastPagesWhenWarmMapedFile=4096 forceVerifyPropCRC=false forwardTimeout=3000 globalColdReadThreshold=104857600
heartbeatThreadPoolNums=2 heartbeatThreadPoolQueueCapacity=50000 highSpeedMode=false indexFileReadEnable=true
indexFileWriteEnable=true indexRocksDBEnable=false initAuthenticationUser=
innerClientAuthenticationCredentials= isBrokerContainer=false isInBrokerContainer=false isolateLogEnable=false
isScanAvailableNameSrv=true iteratorWhenUseRocksdbConsumeQueue=true liteEventCheckInterval=10000
liteEventFullDispatchDelayTime=10000 liteEventFullDispatchDelayTimeForWildcardGroup=10000
liteLagCountMetricsEnable=false liteLagLatencyCollectEnable=false liteLagLatencyMetricsEnable=false
liteLagLatencyTopK=50 litePullMessageThreadPoolNums=20
litePullThreadPoolQueueCapacity=100000 liteSubscriptionCheckInterval=120000 liteSubscriptionCheckTimeoutMills=180000
liteTtlCheckInterval=120000 loadBalancePollNameServerInterval=30000 loadBalanceProcessorThreadPoolNums=32
loadBalanceThreadPoolQueueCapacity=100000 logicalDiskSpaceCleanForciblyThreshold=0.8
logicQueueForceSwapMapInterval=43200000 logicQueueSwapMapInterval=3600000 logicQueueSwapMapReserveFileNum=20
mappedFileSizeConsumeQueueExt=50331648 mappedFileSwapEnable=true
mapperFileSizeBatchConsumeQueue=13800000 maxAsyncPutMessageRequests=5000 maxBatchDeleteFilesNum=50
maxChecksumRange=1073741824 maxClientEventCount=100 maxConsumeQueueScan=20000 maxErrorRateOfBloomFilter=20
maxLiteSubscriptionCount=100000 maxLmqConsumeQueueNum=20000
maxOffsetMapSize=104857600
maxReconnectIntervalTimeSeconds=60 maxRecoveryCommitlogFiles=30 maxRocksDBIndexQueryDays=7
maxSlaveResendLength=268435456 maxStatsIdleTimeInMinutes=-1 maxTopicLength=127
memTableFlushIntervalMs=3600000 messageIndexSafe=false
messageStorePlugIn= metricsOtelCardinalityLimit=50000 migrateAuthFromV1Enabled=false
minLiteTTl=900000 persistConsumerOffsetIncrementally=false
popCkMaxBufferSize=200000 popCkOffsetMaxQueueSize=20000 popCkStayBufferTime=10000 popCkStayBufferTimeOut=3000
popConsumerFSServiceInit=true popConsumerKVServiceEnable=false popConsumerKVServiceInit=false
popConsumerKVServiceLog=false
popInflightMessageThreshold=10000 popLongPollingForceNotifyInterval=800 popPollingMapExpireTimeSeconds=600
popPollingMapSize=100000 popResponseReturnActualRetryTopic=false popReviveConcurrency=32
popReviveMaxAttemptTimes=16 popReviveMaxReturnSizePerRead=16384 popReviveSkipIfGroupAbsent=true preferredLeaderId=
printChannelGroups=false printChannelGroupsMinNum=5 processReplyMessageThreadPoolNums=20
pullBatchMaxMessageCount=160 pullMessageThreadPoolNums=20 pullThreadPoolQueueCapacity=100000
putConsumeQueueDataByFileChannel=true putMessageFutureThreadPoolNums=2 putMessageTimeout=8000
putMsgIndexHightWater=600000 putThreadPoolQueueCapacity=10000 queryMessageThreadPoolNums=10
queryThreadPoolQueueCapacity=20000 readUnCommitted=false
realTimeNotifyConsumerChange=true realTimePersistRocksDBConfig=true
recheckReputOffsetFromCq=false recoverConcurrently=false recoverThreadPoolNums=32 redeleteHangedFileInterval=120000
rejectPullConsumerEnable=false replicasPerDiskPartition=1 replyThreadPoolQueueCapacity=10000
reviveAckWaitMs=180000 reviveMaxSlow=3
reviveScanTime=10000 rocketmqHome= rocksdbCompressionType=lz4 rocksdbCQDoubleWriteEnable=false
rocksdbFlushWalFrequency=1024 rocksdbWalFileRollingThreshold=1073741824 sampleCountThreshold=5000 sampleSteps=32
scheduleAsyncDeliverMaxPendingLimit=2000 scheduleAsyncDeliverMaxResendNum2Blocked=3 searchBcqByCacheEnable=true
sendMessageThreadPoolNums=2 sendThreadPoolQueueCapacity=10000 serverAsyncSemaphoreValue=64
serverCallbackExecutorThreads=0 serverNettyWorkerGroupEnable=true
serverOnewaySemaphoreValue=256 serverPooledByteBufAllocatorEnable=true serverSelectorThreads=3
serverSocketRcvBufSize=0 serverSocketSndBufSize=0 serverWorkerThreads=8 sharedByteBufferNum=16
socksProxyConfig={} spinLockCollisionRetreatOptimalDegree=1000
splitRegistrationSize=800 startAcceptSendRequestTimeStamp=0
statefulAuthenticationCacheExpiredSecond=60 statefulAuthenticationCacheMaxNum=10000
statefulAuthorizationCacheExpiredSecond=60 statefulAuthorizationCacheMaxNum=10000 statRocksDBCQIntervalSec=10
storeCheckpoint= storePathConsumeQueue= storePathDLedgerCommitLog=
storePathIndex= storeType=default timerCheckMetricsWhen=05
timerColdDataCheckIntervalMs=60000 timerEnableCheckMetrics=true
timerEnableDisruptor=false timerEnableRetryUntilSuccess=false timerGetMessageThreadNum=3
timerInterceptDelayLevel=false timerMetricSmallThreshold=1000000
timerProgressLogIntervalMs=10000 timerPutMessageThreadNum=3 timerRecallToTimelineEnable=true
timerRecallToTimeWheelEnable=true timerReputServiceCorePoolSize=6 timerReputServiceMaxPoolSize=6
timerReputServiceQueueCapacity=10000 timerRocksDBEnable=false timerRocksDBPrecisionMs=1000
timerRocksDBRollIntervalHours=1 timerRocksDBRollMaxTps=8000.0 timerRocksDBRollRangeHours=2
timerRocksDBStopScan=false timerRocksDBTimeExpiredMaxTps=200000.0 timerSkipUnknownError=false
timerWarmEnable=false timerWheelSnapshotFlush=false timerWheelSnapshotIntervalMs=10000 topicQueueLockNum=32
transactionCheckRocksdbCoreThreads=2 transactionCheckRocksdbMaxThreads=5 transactionCheckRocksdbQueueCapacity=2000
transferMsgByHeap=true transientStorePoolEnable=false transientStorePoolSize=5 transRocksDBEnable=false
transWriteOriginTransHalfEnable=true travelCqFileNumWhenGetMessage=1
useABSLock=false useEpollNativeSelector=false usePIDColdCtrStrategy=true
userCacheExpiredSecond=600 userCacheMaxNum=1000 userCacheRefreshSecond=60 useReentrantLockWhenPutMessage=true
useSeparateRetryQueue=false useSeparateStorePathForRocksdbCQ=false useSingleRocksDBForAllConfigs=false
useStaticSubscription=false useTLS=false
wakeCommitWhenPutMessage=true
wakeFlushWhenPutMessage=false warmMapedFileEnable=false writeBufferHighWaterMark=0 writeBufferLowWaterMark=0
writeWithoutMmap=false
"""

IDLE: Final[Mapping[str, str]] = dict(word.split("=", 1) for word in _DEFAULTS.split())

NOT_OFFERED: Final[Mapping[str, str]] = {
    # another store
    "enableDLegerCommitLog": "false",
    "storeType": "default",
    "messageStorePlugIn": "",
    "configManagerVersion": "v1",
    "enableCalcFilterBitMap": "false",
    "enableConsumeQueueExt": "false",
    "enableLmq": "false",
    "popConsumerKVServiceEnable": "false",
    "popConsumerKVServiceInit": "false",
    "timerRocksDBEnable": "false",
    "transRocksDBEnable": "false",
    # security
    "aclEnable": "false",
    "authenticationEnabled": "false",
    "authorizationEnabled": "false",
    "useTLS": "false",
}
"""Keys among them that must not be given another value: to go on would lose data, open another store, or drop
security."""

INSTEAD: Final[Mapping[str, str]] = {
    "enableCalcFilterBitMap": "filters work without it",
    "enableConsumeQueueExt": "filters work without it",
    "popConsumerKVServiceEnable": "POP keeps its records in the log, where replicas have them",
    "popConsumerKVServiceInit": "POP keeps its records in the log, where replicas have them",
    "useTLS": "tls.enable is for TLS to others",
}
"""What is offered in place of such a key."""

FEATURES: Final[Mapping[str, Missing]] = {
    "disappearTimeAfterStart": Missing("to register later than it starts", "-1"),
    "duplicationEnable": Missing("duplication"),
    "coldCtrStrategyEnable": Missing("flow control of cold reads"),
    "coldDataFlowControlEnable": Missing("flow control of cold reads"),
    "enableBroadcastOffsetStore": Missing("offsets of broadcasting consumers behind proxies"),
    "enableCleanExpiredOffset": Missing("deletion of offsets that nobody uses"),
    "enableCompaction": Missing("compaction of topics"),
    "enabledAppendPropCRC": Missing("checksums of properties"),
    "enableMultiDispatch": Missing("light message queues"),
    "enableNetWorkFlowControl": Missing("flow control of the network"),
    "fetchControllerAddrByDnsLookup": Missing("controllers by DNS"),
    "forceVerifyPropCRC": Missing("checksums of properties"),
    "indexRocksDBEnable": Missing("an index in RocksDB"),
    "innerClientAuthenticationCredentials": Missing("to authenticate itself to others", ""),
    "readUnCommitted": Missing("reading what is not confirmed"),
    "rejectPullConsumerEnable": Missing("refusal of pull consumers"),
    "rocksdbCQDoubleWriteEnable": Missing("queues in RocksDB"),
    "socksProxyConfig": Missing("connections through SOCKS proxies", "{}"),
    "startAcceptSendRequestTimeStamp": Missing("refusal of sends before a moment", "0"),
    "transientStorePoolEnable": Missing("writes through a pool of memory"),
    "useStaticSubscription": Missing("static subscriptions"),
}
"""Keys among them that ask for more than another number of threads or bytes: if they are given, a warning is logged."""
