// Regkv is a small replicated store of registers, made to be tortured. It is one file and needs Go's standard library alone.
//
//	regkv serve -id kv-1 -self 127.0.0.1:7001 -nodes 127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003 -data /tmp/kv-1
//	regkv client -nodes 127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003
//
// Its registers are those of Attiya, Bar-Noy and Dolev ("Sharing memory robustly in message-passing systems", 1995): a
// write asks a majority for the newest tag and stores its value under a newer one at a majority; a read asks a majority
// for the newest value and stores it at a majority before it tells it. So each register is linearizable while a majority
// lives, and has no leader.
//
// -bug plants one of three mistakes, each of which passes every test that kills nobody:
//
//	buffered-log    a node answers before its log is on disk
//	lonely-reads    a node that reaches no majority answers with what it has itself
//	no-write-back   a read tells what it found and stores it nowhere
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A tag orders the values of one register. Two writes never have the same one: a writer's number is drawn from 2^64.
type tag struct {
	Counter uint64 `json:"counter"`
	Writer  string `json:"writer"`
}

func (a tag) newer(b tag) bool {
	return a.Counter > b.Counter || a.Counter == b.Counter && a.Writer > b.Writer
}

type entry struct {
	Key   string          `json:"key"`
	Tag   tag             `json:"tag"`
	Value json.RawMessage `json:"value"`
}

// A store is what one node holds: the newest entry of each key, and the log that it is read from at a start.
type store struct {
	mutex    sync.Mutex
	entries  map[string]entry
	log      *os.File
	writer   *bufio.Writer
	buffered bool
}

func openStore(directory string, buffered bool) (*store, error) {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(directory, "log"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	made := &store{entries: map[string]entry{}, log: log, writer: bufio.NewWriterSize(log, 1<<20), buffered: buffered}
	whole := int64(0)
	reader := bufio.NewReader(log)
	for {
		line, err := reader.ReadBytes('\n')
		var read entry
		if err != nil || json.Unmarshal(line, &read) != nil {
			break // the last line was cut by a kill; nobody was told of it
		}
		whole += int64(len(line))
		made.keep(read)
	}
	if err := log.Truncate(whole); err != nil {
		return nil, err
	}
	_, err = log.Seek(whole, io.SeekStart)
	return made, err
}

func (s *store) keep(new entry) bool {
	old, known := s.entries[new.Key]
	if known && !new.Tag.newer(old.Tag) {
		return false
	}
	s.entries[new.Key] = new
	return true
}

func (s *store) get(key string) entry {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	found := s.entries[key]
	found.Key = key
	return found
}

// put returns when the entry, or a newer one, is on disk. A disk that fails ends the node: what it holds is not what it has.
func (s *store) put(new entry) error {
	line, err := json.Marshal(new)
	if err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !s.keep(new) {
		return nil
	}
	_, err = s.writer.Write(append(line, '\n'))
	if err == nil && !s.buffered { // the planted bug: else the log is written when the buffer is full
		if err = s.writer.Flush(); err == nil {
			err = s.log.Sync()
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return nil
}

type node struct {
	store *store
	nodes []string
	self  string
	bug   string
	http  *http.Client
}

// majority asks all nodes at once and returns the answers of the first majority.
func (n *node) majority(ctx context.Context, ask func(context.Context, string) (entry, error)) ([]entry, error) {
	type answer struct {
		entry entry
		err   error
	}
	answers := make(chan answer, len(n.nodes))
	for _, each := range n.nodes {
		go func(address string) {
			found, err := ask(ctx, address)
			answers <- answer{found, err}
		}(each)
	}
	need, found, failed := len(n.nodes)/2+1, []entry{}, 0
	for range n.nodes {
		select {
		case got := <-answers:
			if got.err == nil {
				found = append(found, got.entry)
			} else if failed++; failed > len(n.nodes)-need {
				return nil, got.err
			}
			if len(found) == need {
				return found, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, errors.New("no majority answers")
}

func (n *node) newest(ctx context.Context, key string) (entry, error) {
	found, err := n.majority(ctx, func(ctx context.Context, address string) (entry, error) {
		if address == n.self {
			return n.store.get(key), nil
		}
		var read entry
		body, err := n.call(ctx, http.MethodGet, address, key, nil)
		if err == nil {
			err = json.Unmarshal(body, &read)
		}
		return read, err
	})
	if err != nil {
		return entry{}, err
	}
	best := found[0]
	for _, each := range found[1:] {
		if each.Tag.newer(best.Tag) {
			best = each
		}
	}
	return best, nil
}

func (n *node) spread(ctx context.Context, new entry) error {
	body, err := json.Marshal(new)
	if err != nil {
		return err
	}
	// who is not in the first majority shall have it, too: what is sent goes on after the answer
	put := func(_ context.Context, address string) (entry, error) {
		if address == n.self {
			return new, n.store.put(new)
		}
		longer, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err := n.call(longer, http.MethodPut, address, new.Key, body)
		return new, err
	}
	_, err = n.majority(ctx, put)
	return err
}

func (n *node) call(ctx context.Context, method, address, key string, body []byte) ([]byte, error) {
	where := "http://" + address + "/local/" + url.PathEscape(key)
	asked, err := http.NewRequestWithContext(ctx, method, where, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	answer, err := n.http.Do(asked)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	read, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", address, answer.Status)
	}
	return read, err
}

// read is a client's GET /register/KEY.
func (n *node) read(ctx context.Context, key string) (json.RawMessage, error) {
	found, err := n.newest(ctx, key)
	if err == nil && found.Tag.Counter > 0 && n.bug != "no-write-back" {
		err = n.spread(ctx, found)
	}
	if err != nil && n.bug == "lonely-reads" {
		return n.store.get(key).Value, nil
	}
	return found.Value, err
}

// write is a client's PUT /register/KEY.
func (n *node) write(ctx context.Context, key string, value json.RawMessage) error {
	found, err := n.newest(ctx, key)
	if err != nil {
		return err
	}
	var drawn [8]byte
	if _, err := rand.Read(drawn[:]); err != nil {
		return err
	}
	return n.spread(ctx, entry{key, tag{found.Tag.Counter + 1, hex.EncodeToString(drawn[:])}, value})
}

func (n *node) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	ctx, cancel := context.WithTimeout(r.Context(), 400*time.Millisecond)
	defer cancel()
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	switch {
	case err != nil:
	case path == "healthz":
	case path == "local" && r.Method == http.MethodGet:
		body, err = json.Marshal(n.store.get(key))
	case path == "local" && r.Method == http.MethodPut:
		var new entry
		if err = json.Unmarshal(body, &new); err == nil {
			err = n.store.put(new)
		}
	case path == "register" && r.Method == http.MethodGet:
		body, err = n.read(ctx, key)
	case path == "register" && r.Method == http.MethodPut:
		err = n.write(ctx, key, body)
	default:
		http.NotFound(w, r)
		return
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Write(body)
}

func serve(arguments []string) error {
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	id := flags.String("id", "", "name, for people")
	self := flags.String("self", "", "host:port at which the others find this node")
	listen := flags.String("listen", "", "host:port, where it is another one")
	nodes := flags.String("nodes", "", "host:port of all nodes, with commas between")
	data := flags.String("data", "", "directory")
	bug := flags.String("bug", "", "buffered-log, lonely-reads or no-write-back")
	flags.Parse(arguments)
	kept, err := openStore(*data, *bug == "buffered-log")
	if err != nil {
		return err
	}
	if *listen == "" {
		*listen = *self
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	fmt.Printf("%s listens at %s with %d keys\n", *id, *listen, len(kept.entries))
	short := &http.Transport{DialContext: (&net.Dialer{Timeout: time.Second}).DialContext, MaxIdleConnsPerHost: 16}
	handler := &node{kept, strings.Split(*nodes, ","), *self, *bug, &http.Client{Transport: short}}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-ended
		listener.Close()
	}()
	if err := http.Serve(listener, handler); !errors.Is(err, net.ErrClosed) {
		return err
	}
	kept.mutex.Lock()
	return kept.writer.Flush()
}

// An operation, and what came of it, as lines of JSON.
type operation struct {
	ID        int             `json:"id"`
	F         string          `json:"f,omitempty"`
	Key       any             `json:"key,omitempty"`
	Value     json.RawMessage `json:"value,omitempty"`
	TimeoutMS int             `json:"timeout_ms,omitempty"`
	Type      string          `json:"type,omitempty"`
	Error     string          `json:"error,omitempty"`
}

func client(arguments []string) error {
	flags := flag.NewFlagSet("client", flag.ExitOnError)
	nodes := flags.String("nodes", "", "host:port of all nodes, with commas between")
	first := flags.Int("first", 0, "the number of the node that is asked first")
	flags.Parse(arguments)
	addresses := strings.Split(*nodes, ",")
	fmt.Println(`{"ready": true}`)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for number := *first; lines.Scan(); {
		var asked operation
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			return err
		}
		told := operation{ID: asked.ID}
		value, err, sure := ask(addresses[number%len(addresses)], asked)
		switch {
		case err == nil:
			told.Type, told.Value = "ok", value
		case sure || asked.F == "read":
			told.Type, told.Error = "fail", err.Error()
		default:
			told.Type, told.Error = "info", err.Error()
		}
		if sure {
			number++ // nobody is there: the next node
		}
		line, err := json.Marshal(told)
		if err != nil {
			return err
		}
		fmt.Println(string(line))
	}
	return lines.Err()
}

// ask also says whether an operation that failed surely did not happen.
func ask(address string, asked operation) (json.RawMessage, error, bool) {
	method, body := http.MethodGet, []byte(nil)
	if asked.F == "write" {
		method, body = http.MethodPut, asked.Value
	} else if asked.F != "read" {
		return nil, fmt.Errorf("no operation %q", asked.F), true
	}
	timeout := time.Duration(max(asked.TimeoutMS, 100)) * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	where := "http://" + address + "/register/" + url.PathEscape(fmt.Sprint(asked.Key))
	made, err := http.NewRequestWithContext(ctx, method, where, bytes.NewReader(body))
	if err != nil {
		return nil, err, true
	}
	answer, err := http.DefaultClient.Do(made)
	if err != nil {
		var failed *net.OpError
		return nil, err, errors.As(err, &failed) && failed.Op == "dial"
	}
	defer answer.Body.Close()
	read, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = errors.New(strings.TrimSpace(string(read)))
	}
	if len(read) == 0 {
		read = json.RawMessage("null")
	}
	if asked.F == "write" {
		read = nil
	}
	return read, err, false
}

func main() {
	commands := map[string]func([]string) error{"serve": serve, "client": client}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: regkv serve|client ...; -h says more")
		os.Exit(2)
	}
	if err := commands[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
