// One of three nodes of dragonboat v4, one shard, its default log store (fsync on). The leader measures proposals
// and, at the widest, linearizable reads.
package main

import (
	"context"
	"io"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/logger"
	"github.com/lni/dragonboat/v4/statemachine"

	"quorate/load"
)

const shard = 1

type counter struct{ n uint64 }

func (c *counter) Update(statemachine.Entry) (statemachine.Result, error) {
	c.n++
	return statemachine.Result{Value: c.n}, nil
}
func (c *counter) Lookup(any) (any, error) { return c.n, nil }
func (c *counter) SaveSnapshot(io.Writer, statemachine.ISnapshotFileCollection, <-chan struct{}) error {
	return nil
}
func (c *counter) RecoverFromSnapshot(io.Reader, []statemachine.SnapshotFile, <-chan struct{}) error {
	return nil
}
func (c *counter) Close() error { return nil }

func main() {
	run := load.Flags()
	for _, name := range []string{"raft", "rsm", "transport", "grpc", "dragonboat", "logdb", "config"} {
		logger.GetLogger(name).SetLevel(logger.ERROR)
	}
	host, err := dragonboat.NewNodeHost(config.NodeHostConfig{
		WALDir: run.Dir, NodeHostDir: run.Dir, RTTMillisecond: 50, RaftAddress: run.Address(run.ID),
	})
	load.Check(err)
	members := map[uint64]dragonboat.Target{}
	for id := range run.Ports {
		members[uint64(id+1)] = run.Address(id)
	}
	self := uint64(run.ID + 1)
	create := func(uint64, uint64) statemachine.IStateMachine { return &counter{} }
	load.Check(host.StartReplica(members, false, create, config.Config{
		ReplicaID: self, ShardID: shard, ElectionRTT: 10, HeartbeatRTT: 1, CheckQuorum: true,
	}))
	for {
		if leader, _, known, _ := host.GetLeaderID(shard); known && leader == self {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(500 * time.Millisecond)

	session := host.GetNoOPSession(shard)
	run.Measure("propose", func(data []byte) error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_, err := host.SyncPropose(ctx, session, data)
		return err
	})
	if run.Size == 128 { // reads have no size: once per round is enough
		run.Widths, run.Size = run.Widths[len(run.Widths)-1:], 0
		run.Measure("read_leader", func([]byte) error {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_, err := host.SyncRead(ctx, shard, nil)
			return err
		})
	}
	load.Done()
}
