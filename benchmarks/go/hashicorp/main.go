// One of three nodes of hashicorp/raft with its log in raft-wal (fsync on) and its term and vote in boltdb.
// Tuned as its users do for throughput: batched apply channel and large appends. The leader measures.
package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	boltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"

	"quorate/load"
)

type counter struct{ n int }

func (c *counter) Apply(*raft.Log) any {
	c.n++
	return c.n
}
func (c *counter) Snapshot() (raft.FSMSnapshot, error) { return nil, errors.New("not measured") }
func (c *counter) Restore(io.ReadCloser) error         { return errors.New("not measured") }

func main() {
	run := load.Flags()
	walDir := filepath.Join(run.Dir, "wal")
	load.Check(os.MkdirAll(walDir, 0o755))

	config := raft.DefaultConfig()
	config.LocalID = raft.ServerID(strconv.Itoa(run.ID))
	config.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Error})
	config.SnapshotThreshold = 1 << 40
	config.MaxAppendEntries = 1024
	config.BatchApplyCh = true

	log, err := wal.Open(walDir)
	load.Check(err)
	stable, err := boltdb.NewBoltStore(filepath.Join(run.Dir, "stable.db"))
	load.Check(err)
	transport, err := raft.NewTCPTransport(run.Address(run.ID), nil, 3, 10*time.Second, os.Stderr)
	load.Check(err)
	node, err := raft.NewRaft(config, &counter{}, log, stable, raft.NewInmemSnapshotStore(), transport)
	load.Check(err)

	if run.ID == 0 {
		var servers []raft.Server
		for id := range run.Ports {
			servers = append(servers, raft.Server{
				ID: raft.ServerID(strconv.Itoa(id)), Address: raft.ServerAddress(run.Address(id)),
			})
		}
		load.Check(node.BootstrapCluster(raft.Configuration{Servers: servers}).Error())
	}
	for node.State() != raft.Leader {
		time.Sleep(20 * time.Millisecond)
	}
	load.Check(node.Barrier(10 * time.Second).Error())
	run.Measure("propose", func(data []byte) error { return node.Apply(data, 10*time.Second).Error() })
	load.Done()
}
