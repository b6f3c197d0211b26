// Sends numbered messages in transactions with RocketMQ's Go client, and answers checks until it is killed. One argument,
// JSON: namesrv, topic, group, count, interval_ms, plans: what becomes of each message in turn, such as "UNKNOW/COMMIT":
// first the local transaction, then each check, the last word again and again. Lines of JSON: sent, checked.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type settings struct {
	Namesrv    string   `json:"namesrv"`
	Topic      string   `json:"topic"`
	Group      string   `json:"group"`
	Count      int      `json:"count"`
	IntervalMs int      `json:"interval_ms"`
	Plans      []string `json:"plans"`
}

var printing sync.Mutex

// The event stands in front: by that lines are known.
func say(event string, fields map[string]any) {
	line, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	printing.Lock()
	defer printing.Unlock()
	fmt.Printf("{\"event\":%q,%s\n", event, line[1:])
}

type decider struct {
	plans  []string
	lock   sync.Mutex
	checks map[int]int
}

func (d *decider) said(body []byte, number int) (int, primitive.LocalTransactionState) {
	sequence, err := strconv.Atoi(strings.TrimSpace(string(body)))
	if err != nil {
		panic(err)
	}
	words := strings.Split(d.plans[sequence%len(d.plans)], "/")
	switch words[min(number, len(words)-1)] {
	case "COMMIT":
		return sequence, primitive.CommitMessageState
	case "ROLLBACK":
		return sequence, primitive.RollbackMessageState
	}
	return sequence, primitive.UnknowState
}

func (d *decider) ExecuteLocalTransaction(message *primitive.Message) primitive.LocalTransactionState {
	_, state := d.said(message.Body, 0)
	return state
}

func (d *decider) CheckLocalTransaction(message *primitive.MessageExt) primitive.LocalTransactionState {
	sequence, _ := d.said(message.Body, 0)
	d.lock.Lock()
	d.checks[sequence]++
	number := d.checks[sequence]
	d.lock.Unlock()
	_, state := d.said(message.Body, number)
	say("checked", map[string]any{"sequence": sequence, "answer": int(state)})
	return state
}

func main() {
	rlog.SetLogLevel("fatal")
	var given settings
	if err := json.Unmarshal([]byte(os.Args[1]), &given); err != nil {
		panic(err)
	}
	made, err := rocketmq.NewTransactionProducer(
		&decider{plans: given.Plans, checks: map[int]int{}},
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{given.Namesrv})),
		producer.WithGroupName(given.Group), producer.WithRetry(0))
	if err == nil {
		err = made.Start()
	}
	if err != nil {
		panic(err)
	}
	say("started", map[string]any{"plans": len(given.Plans)})
	for sequence := 0; sequence < given.Count; sequence++ {
		message := primitive.NewMessage(given.Topic, []byte(fmt.Sprintf("%d ", sequence)))
		result, err := made.SendMessageInTransaction(context.Background(), message)
		line := map[string]any{"sequence": sequence, "ok": err == nil && result.Status == primitive.SendOK}
		if err != nil {
			line["error"] = err.Error()
		}
		say("sent", line)
		time.Sleep(time.Duration(given.IntervalMs) * time.Millisecond)
	}
	select {}
}
