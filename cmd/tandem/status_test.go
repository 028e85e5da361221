package main

import (
	"encoding/json"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/broker"
	"tandem/codec"
	"tandem/transfer"
)

const tandemMaster = `{"version":1,"role":"SYNC_MASTER","cluster":"C","brokerName":"b1","brokerId":0,"addr":"10.0.0.1:10911",
"rule":"waits for 1 slave","minOffset":0,"maxOffset":2048,"flushed":1024,"dispatched":2000,"uptimeMs":5,
"appendTimes":{"count":12,"p50Ns":640,"p99Ns":2100,"p999Ns":9800,"p9999Ns":81234,"maxNs":1234567},
"master":{"addr":"10.0.0.1:10912","need":1,"usable":1,"maxOffset":2048,"replicated":2000,
"slaves":[{"id":"C/b1/1","addr":"10.0.0.2:5","state":"InSync","acked":2000,"reported":true,"lagBytes":48,"lagMs":3,"bytesPerSec":4096,"inSync":true},
{"id":"","addr":"10.0.0.3:6","state":"Connected","reported":false,"lastError":"reports went backwards"}],
"waiting":2,"oldestWaitMs":7,"syncWait":{"count":100,"failed":1,"p50Us":90,"p90Us":120,"p99Us":1500,"p999Us":2000000,"maxUs":2000001},
"refusals":[{"addr":"10.0.0.9:7","reason":"asks above the end","whenMs":1000}],"refused":1}}`

const tandemSlave = `{"role":"SLAVE","cluster":"C","brokerName":"b1","brokerId":1,"addr":"10.0.0.2:10911","rule":"takes no sends","minOffset":0,"maxOffset":1536,
"flushed":1536,"storeError":"disk full","slave":{"state":"Transfer","masterAddr":"10.0.0.1:10912","maxOffset":1536,"masterMax":2048,"lastReadMs":1500,
"historyCheck":"last record at 1400 is the master's","lastError":"connection reset","lastErrorMs":1000}}`

var apacheMaster = answers{
	codec.ReqGetBrokerConfig:      "brokerRole=SYNC_MASTER\nbrokerName=b2\nbrokerClusterName=C\nbrokerId=0\ninSyncReplicas=2\n",
	codec.ReqGetBrokerRuntimeInfo: `{"table":{"commitLogMinOffset":"0","commitLogMaxOffset":"500"}}`,
	codec.ReqGetBrokerHAStatus: `{"master":true,"masterCommitLogMaxOffset":500,"inSyncSlaveNums":1,"haConnectionInfo":[{"addr":"10.0.0.4:8",
"slaveAckOffset":400,"diff":100,"inSync":true,"transferredByteInSecond":10,"transferFromWhere":450}]}`,
}

func TestStatusTextShowsRolesSlavesOffsetsAndLag(t *testing.T) {
	var reports []brokerReport
	for _, text := range []string{tandemMaster, tandemSlave} {
		r := brokerReport{Software: "tandem"}
		require.NoError(t, json.Unmarshal([]byte(text), &r))
		reports = append(reports, r)
	}
	alone := broker.Status{Role: "SYNC_MASTER", Cluster: "C", BrokerName: "b3", Addr: "c:1", Rule: "waits for 1 slave", Master: &transfer.MasterStatus{Need: 1}}
	joining := broker.Status{Role: "SLAVE", Cluster: "C", BrokerName: "b3", BrokerID: 2, Addr: "c:2", Rule: "takes no sends",
		Slave: &transfer.SlaveStatus{State: transfer.Waiting}}
	reports = append(reports, brokerReport{alone, "tandem", ""}, brokerReport{joining, "tandem", ""},
		brokerReport{Status: broker.Status{Addr: "d:1"}, Error: "broker d:1: peer unreachable"})

	got := renderReports(reports, time.UnixMilli(2000))
	const golden = "testdata/status.txt"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestStatusAsksATandemBroker(t *testing.T) {
	addr := serveAnswers(t, answers{codec.ReqTandemStatus: tandemMaster})
	r := tandem(t, "status", "-b", addr, "--json")
	require.Equal(t, statusHolds, r.status, r.stderr)
	var got brokerReport
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	require.Equal(t, "SYNC_MASTER", got.Role)
	require.Equal(t, addr, got.Addr, "where it was asked, not what it calls itself")
	require.EqualValues(t, 2000, got.Master.Slaves[0].Acked)
	require.EqualValues(t, 1500, got.Master.SyncWait.P99Us)
}

func TestStatusShowsWhatAnApacheBrokerCanTell(t *testing.T) {
	r := tandem(t, "status", "-b", serveAnswers(t, apacheMaster))
	require.Equal(t, statusHolds, r.status, r.stderr)
	require.Contains(t, r.stdout, "C/b2/0  SYNC_MASTER")
	require.Contains(t, r.stdout, "(Apache RocketMQ)")
	require.Contains(t, r.stdout, "SYNC_MASTER with inSyncReplicas=2: waits for 1 slave(s)")
	require.Contains(t, r.stdout, "1 connected, 1 usable, 1 needed")
	require.Regexp(t, `10\.0\.0\.4:8 +│ InSync +│ +400 │ +100 B`, r.stdout)
}

func TestTheRuleOfAnApacheBrokerIsSaidAsItIs(t *testing.T) {
	tests := []struct{ config, want string }{
		{"brokerRole=SYNC_MASTER\ninSyncReplicas=1", "SYNC_MASTER with inSyncReplicas=1: waits for NO slave"},
		{"brokerRole=SYNC_MASTER", "SYNC_MASTER of 4.9: waits for one slave"},
		{"brokerRole=ASYNC_MASTER\ninSyncReplicas=2", "waits for no slave"},
		{"brokerRole=SLAVE\r\n", "takes no sends"},
	}
	for _, tt := range tests {
		var r brokerReport
		r.fromConfig(properties([]byte(tt.config)))
		require.Equal(t, tt.want, r.Rule)
	}
}

func TestStatusOfANameServerListsItsBrokersAndFailsWhereOneIsGone(t *testing.T) {
	slave := serveAnswers(t, answers{codec.ReqTandemStatus: tandemSlave})
	gone := listen(t)
	require.NoError(t, gone.Close())
	cluster := fmt.Sprintf(`{"brokerAddrTable":{"b1":{"brokerAddrs":{1:%q,0:%q},"brokerName":"b1","cluster":"C"}},"clusterAddrTable":{"C":["b1"]}}`,
		slave, gone.Addr().String())
	ns := serveAnswers(t, answers{codec.ReqGetBrokerClusterInfo: cluster})

	r := tandem(t, "status", "-n", gone.Addr().String()+";"+ns, "--json")
	require.Equal(t, statusFails, r.status)
	var got []brokerReport
	require.NoError(t, json.Unmarshal([]byte(r.stdout), &got))
	require.Len(t, got, 2)
	require.Contains(t, got[0].Error, gone.Addr().String())
	require.Equal(t, "SLAVE", got[1].Role)
	require.Equal(t, transfer.Transfer, got[1].Slave.State)
	require.Contains(t, r.stderr, "tandem status: broker "+gone.Addr().String())
}

func TestStatusWatchesUntilItIsStopped(t *testing.T) {
	p := launch(t, "status", "-b", serveAnswers(t, answers{codec.ReqTandemStatus: tandemMaster}), "--watch", "--json", "--interval=100ms")
	p.waitFor("SYNC_MASTER")
	require.Equal(t, statusHolds, p.stop(syscall.SIGINT))
	require.NotContains(t, p.log.String(), "\x1b", "no screen control in a pipe")
}
