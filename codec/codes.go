package codec

import "strconv"

// RequestCode is the code of a remoting request (Apache class RequestCode).
type RequestCode = int32

// Requests between clients, brokers and name servers.
const (
	ReqSendMessage                     RequestCode = 10
	ReqPullMessage                     RequestCode = 11
	ReqQueryMessage                    RequestCode = 12
	ReqQueryConsumerOffset             RequestCode = 14
	ReqUpdateConsumerOffset            RequestCode = 15
	ReqUpdateAndCreateTopic            RequestCode = 17
	ReqUpdateAndCreateTopicList        RequestCode = 18
	ReqGetAllTopicConfig               RequestCode = 21
	ReqUpdateBrokerConfig              RequestCode = 25
	ReqGetBrokerConfig                 RequestCode = 26
	ReqGetBrokerRuntimeInfo            RequestCode = 28
	ReqSearchOffsetByTimestamp         RequestCode = 29
	ReqGetMaxOffset                    RequestCode = 30
	ReqGetMinOffset                    RequestCode = 31
	ReqGetEarliestMsgStoreTime         RequestCode = 32
	ReqViewMessageByID                 RequestCode = 33
	ReqHeartbeat                       RequestCode = 34
	ReqUnregisterClient                RequestCode = 35
	ReqConsumerSendMsgBack             RequestCode = 36
	ReqEndTransaction                  RequestCode = 37
	ReqGetConsumerListByGroup          RequestCode = 38
	ReqCheckTransactionState           RequestCode = 39
	ReqNotifyConsumerIDsChanged        RequestCode = 40
	ReqLockBatchMQ                     RequestCode = 41
	ReqUnlockBatchMQ                   RequestCode = 42
	ReqGetAllConsumerOffset            RequestCode = 43
	ReqGetAllDelayOffset               RequestCode = 45
	ReqCheckClientConfig               RequestCode = 46
	ReqGetTimerCheckPoint              RequestCode = 60
	ReqGetTimerMetrics                 RequestCode = 61
	ReqPutKVConfig                     RequestCode = 100
	ReqGetKVConfig                     RequestCode = 101
	ReqDeleteKVConfig                  RequestCode = 102
	ReqRegisterBroker                  RequestCode = 103
	ReqUnregisterBroker                RequestCode = 104
	ReqGetRouteInfoByTopic             RequestCode = 105
	ReqGetBrokerClusterInfo            RequestCode = 106
	ReqUpdateAndCreateGroup            RequestCode = 200
	ReqGetAllSubscriptionGroupConfig   RequestCode = 201
	ReqGetTopicStatsInfo               RequestCode = 202
	ReqGetConsumerConnectionList       RequestCode = 203
	ReqGetProducerConnectionList       RequestCode = 204
	ReqWipeWritePermOfBroker           RequestCode = 205
	ReqGetAllTopicListFromNamesrv      RequestCode = 206
	ReqDeleteSubscriptionGroup         RequestCode = 207
	ReqGetConsumeStats                 RequestCode = 208
	ReqDeleteTopicInBroker             RequestCode = 215
	ReqDeleteTopicInNamesrv            RequestCode = 216
	ReqRegisterTopicInNamesrv          RequestCode = 217
	ReqGetKVListByNamespace            RequestCode = 219
	ReqResetConsumerClientOffset       RequestCode = 220
	ReqGetConsumerStatusFromClient     RequestCode = 221
	ReqInvokeBrokerToResetOffset       RequestCode = 222
	ReqInvokeBrokerToGetConsumerStatus RequestCode = 223
	ReqGetTopicsByCluster              RequestCode = 224
	ReqUpdateAndCreateGroupList        RequestCode = 225
	ReqQueryTopicConsumeByWho          RequestCode = 300
	ReqQueryConsumeTimeSpan            RequestCode = 303
	ReqGetSystemTopicListFromNamesrv   RequestCode = 304
	ReqGetSystemTopicListFromBroker    RequestCode = 305
	ReqCleanExpiredConsumeQueue        RequestCode = 306
	ReqGetConsumerRunningInfo          RequestCode = 307
	ReqQueryCorrectionOffset           RequestCode = 308
	ReqConsumeMessageDirectly          RequestCode = 309
	ReqSendMessageV2                   RequestCode = 310
	ReqCloneGroupOffset                RequestCode = 314
	ReqViewBrokerStatsData             RequestCode = 315
	ReqCleanUnusedTopic                RequestCode = 316
	ReqGetBrokerConsumeStats           RequestCode = 317
	ReqUpdateNamesrvConfig             RequestCode = 318
	ReqGetNamesrvConfig                RequestCode = 319
	ReqSendBatchMessage                RequestCode = 320
	ReqQueryConsumeQueue               RequestCode = 321
	ReqQueryDataVersion                RequestCode = 322
	ReqResumeCheckHalfMessage          RequestCode = 323
	ReqSendReplyMessage                RequestCode = 324
	ReqSendReplyMessageV2              RequestCode = 325
	ReqPushReplyMessageToClient        RequestCode = 326
	ReqAddWritePermOfBroker            RequestCode = 327
	ReqGetAllProducerInfo              RequestCode = 328
	ReqDeleteExpiredCommitLog          RequestCode = 329
	ReqQueryTopicsByConsumer           RequestCode = 343
	ReqQuerySubscriptionByConsumer     RequestCode = 345
	ReqGetTopicConfig                  RequestCode = 351
	ReqGetSubscriptionGroupConfig      RequestCode = 352
	ReqUpdateAndGetGroupForbidden      RequestCode = 353
	ReqLitePullMessage                 RequestCode = 361
	ReqRecallMessage                   RequestCode = 370
	ReqQueryAssignment                 RequestCode = 400
	ReqSetMessageRequestMode           RequestCode = 401
	ReqGetAllMessageRequestMode        RequestCode = 402
	ReqGetBrokerMemberGroup            RequestCode = 901
	ReqBrokerHeartbeat                 RequestCode = 904
	ReqNotifyMinBrokerIDChange         RequestCode = 905
	ReqExchangeBrokerHAInfo            RequestCode = 906
	ReqGetBrokerHAStatus               RequestCode = 907
	ReqGetBrokerEpochCache             RequestCode = 1007
	ReqNotifyBrokerRoleChanged         RequestCode = 1008
)

// Requests only tandem knows.
const (
	// ReqTandemHello is sent by a slave to its master's remoting port: who it is and which replication connection is its own.
	ReqTandemHello RequestCode = 30910
	// ReqTandemStatus asks a broker for the JSON behind `tandem status`.
	ReqTandemStatus RequestCode = 30911
)

// ResponseCode is the code of a remoting response (Apache classes ResponseCode and RemotingSysResponseCode).
type ResponseCode = int32

// Response codes. CodeName gives the upper-case name Apache's tools show.
const (
	Success                    ResponseCode = 0
	SystemError                ResponseCode = 1
	SystemBusy                 ResponseCode = 2
	RequestCodeNotSupported    ResponseCode = 3
	TransactionFailed          ResponseCode = 4
	FlushDiskTimeout           ResponseCode = 10
	SlaveNotAvailable          ResponseCode = 11
	FlushSlaveTimeout          ResponseCode = 12
	MessageIllegal             ResponseCode = 13
	ServiceNotAvailable        ResponseCode = 14
	VersionNotSupported        ResponseCode = 15
	NoPermission               ResponseCode = 16
	TopicNotExist              ResponseCode = 17
	TopicExistAlready          ResponseCode = 18
	PullNotFound               ResponseCode = 19
	PullRetryImmediately       ResponseCode = 20
	PullOffsetMoved            ResponseCode = 21
	QueryNotFound              ResponseCode = 22
	SubscriptionParseFailed    ResponseCode = 23
	SubscriptionNotExist       ResponseCode = 24
	SubscriptionNotLatest      ResponseCode = 25
	SubscriptionGroupNotExist  ResponseCode = 26
	FilterDataNotExist         ResponseCode = 27
	FilterDataNotLatest        ResponseCode = 28
	InvalidParameter           ResponseCode = 29
	TransactionShouldCommit    ResponseCode = 200
	TransactionShouldRollback  ResponseCode = 201
	TransactionStateUnknown    ResponseCode = 202
	TransactionStateGroupWrong ResponseCode = 203
	NoBuyerID                  ResponseCode = 204
	NotInCurrentUnit           ResponseCode = 205
	ConsumerNotOnline          ResponseCode = 206
	ConsumeMsgTimeout          ResponseCode = 207
	NoMessage                  ResponseCode = 208
	PollingFull                ResponseCode = 209
	PollingTimeout             ResponseCode = 210
	BrokerNotExist             ResponseCode = 211
	FlowControl                ResponseCode = 215
	NotLeaderForQueue          ResponseCode = 501
	IllegalOperation           ResponseCode = 604
	GoAway                     ResponseCode = 1500
)

// CodeName is the name Apache's tools show for a response code, or the number for a code without one.
func CodeName(code ResponseCode) string {
	if name := codeName(code); name != "" {
		return name
	}
	return strconv.Itoa(int(code))
}

func codeName(code ResponseCode) string {
	switch code {
	case Success:
		return "SUCCESS"
	case SystemError:
		return "SYSTEM_ERROR"
	case SystemBusy:
		return "SYSTEM_BUSY"
	case RequestCodeNotSupported:
		return "REQUEST_CODE_NOT_SUPPORTED"
	case TransactionFailed:
		return "TRANSACTION_FAILED"
	case FlushDiskTimeout:
		return "FLUSH_DISK_TIMEOUT"
	case SlaveNotAvailable:
		return "SLAVE_NOT_AVAILABLE"
	case FlushSlaveTimeout:
		return "FLUSH_SLAVE_TIMEOUT"
	case MessageIllegal:
		return "MESSAGE_ILLEGAL"
	case ServiceNotAvailable:
		return "SERVICE_NOT_AVAILABLE"
	case VersionNotSupported:
		return "VERSION_NOT_SUPPORTED"
	case NoPermission:
		return "NO_PERMISSION"
	case TopicNotExist:
		return "TOPIC_NOT_EXIST"
	case TopicExistAlready:
		return "TOPIC_EXIST_ALREADY"
	case PullNotFound:
		return "PULL_NOT_FOUND"
	case PullRetryImmediately:
		return "PULL_RETRY_IMMEDIATELY"
	case PullOffsetMoved:
		return "PULL_OFFSET_MOVED"
	case QueryNotFound:
		return "QUERY_NOT_FOUND"
	case SubscriptionParseFailed:
		return "SUBSCRIPTION_PARSE_FAILED"
	case SubscriptionNotExist:
		return "SUBSCRIPTION_NOT_EXIST"
	case SubscriptionNotLatest:
		return "SUBSCRIPTION_NOT_LATEST"
	case SubscriptionGroupNotExist:
		return "SUBSCRIPTION_GROUP_NOT_EXIST"
	case FilterDataNotExist:
		return "FILTER_DATA_NOT_EXIST"
	case FilterDataNotLatest:
		return "FILTER_DATA_NOT_LATEST"
	case InvalidParameter:
		return "INVALID_PARAMETER"
	}
	return laterCodeName(code)
}

// laterCodeName names the codes above 29: transactions, consumers, and what 5.x added.
func laterCodeName(code ResponseCode) string {
	switch code {
	case TransactionShouldCommit:
		return "TRANSACTION_SHOULD_COMMIT"
	case TransactionShouldRollback:
		return "TRANSACTION_SHOULD_ROLLBACK"
	case TransactionStateUnknown:
		return "TRANSACTION_STATE_UNKNOW"
	case TransactionStateGroupWrong:
		return "TRANSACTION_STATE_GROUP_WRONG"
	case NoBuyerID:
		return "NO_BUYER_ID"
	case NotInCurrentUnit:
		return "NOT_IN_CURRENT_UNIT"
	case ConsumerNotOnline:
		return "CONSUMER_NOT_ONLINE"
	case ConsumeMsgTimeout:
		return "CONSUME_MSG_TIMEOUT"
	case NoMessage:
		return "NO_MESSAGE"
	case PollingFull:
		return "POLLING_FULL"
	case PollingTimeout:
		return "POLLING_TIMEOUT"
	case BrokerNotExist:
		return "BROKER_NOT_EXIST"
	case FlowControl:
		return "FLOW_CONTROL"
	case NotLeaderForQueue:
		return "NOT_LEADER_FOR_QUEUE"
	case IllegalOperation:
		return "ILLEGAL_OPERATION"
	case GoAway:
		return "GO_AWAY"
	}
	return ""
}

// Versions are ordinals of Apache's version table (class MQVersion).
const (
	VersionV3_0_11         = 37
	VersionV3_4_9          = 121
	VersionV4_1_0_SNAPSHOT = 232
	VersionV4_9_4          = 401
	VersionV4_9_7          = 407
	VersionV5_0_0          = 413
	VersionV5_3_1          = 475
	VersionV5_3_3          = 479
	VersionV5_4_0          = 493
	VersionV5_5_0          = 513
)

// Languages a header can name (Apache class LanguageCode).
const (
	LanguageJava   byte = 0
	LanguageCPP    byte = 1
	LanguageDotNet byte = 2
	LanguagePython byte = 3
	LanguageDelphi byte = 4
	LanguageErlang byte = 5
	LanguageRuby   byte = 6
	LanguageOther  byte = 7
	LanguageHTTP   byte = 8
	LanguageGo     byte = 9
	LanguagePHP    byte = 10
	LanguageOMS    byte = 11
	LanguageRust   byte = 12
	LanguageNodeJS byte = 13
)

// LanguageName is the name that stands in a JSON header; OTHER for a number nobody gave a name.
func LanguageName(l byte) string {
	switch l {
	case LanguageJava:
		return "JAVA"
	case LanguageCPP:
		return "CPP"
	case LanguageDotNet:
		return "DOTNET"
	case LanguagePython:
		return "PYTHON"
	case LanguageDelphi:
		return "DELPHI"
	case LanguageErlang:
		return "ERLANG"
	case LanguageRuby:
		return "RUBY"
	case LanguageHTTP:
		return "HTTP"
	case LanguageGo:
		return "GO"
	case LanguagePHP:
		return "PHP"
	case LanguageOMS:
		return "OMS"
	case LanguageRust:
		return "RUST"
	case LanguageNodeJS:
		return "NODE_JS"
	}
	return "OTHER"
}

// languageOf is the reverse of LanguageName; a name it does not know is LanguageOther.
func languageOf(name []byte) byte {
	for l := LanguageJava; l <= LanguageNodeJS; l++ {
		if string(name) == LanguageName(l) {
			return l
		}
	}
	return LanguageOther
}
