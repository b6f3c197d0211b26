// Package load is the Go twin of benchmarks/measure.py: the same flags, the same callers, the same rows.
// It knows nothing of the library under measurement.
package load

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Run says which of three nodes this process is, and what the leader shall measure.
type Run struct {
	ID      int
	Ports   []int
	Dir     string
	Widths  []int
	Size    int
	Seconds float64
}

type row struct {
	Case  string  `json:"case"`
	Width int     `json:"width"`
	Size  int     `json:"size_bytes"`
	Rate  float64 `json:"per_second"`
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
}

// Flags reads the command line.
func Flags() Run {
	var run Run
	flag.IntVar(&run.ID, "id", 0, "0, 1 or 2")
	flag.StringVar(&run.Dir, "dir", "", "directory of this node alone")
	flag.IntVar(&run.Size, "size", 128, "bytes of a proposal")
	flag.Float64Var(&run.Seconds, "seconds", 3, "length of each measurement")
	ports := flag.String("ports", "", "three ports, by comma")
	widths := flag.String("widths", "1,64,256,1000", "callers, by comma")
	flag.Parse()
	run.Ports, run.Widths = numbers(*ports), numbers(*widths)
	return run
}

func numbers(text string) (out []int) {
	for _, part := range strings.Split(text, ",") {
		n, err := strconv.Atoi(part)
		Check(err)
		out = append(out, n)
	}
	return out
}

// Address of node id.
func (run Run) Address(id int) string { return fmt.Sprintf("127.0.0.1:%d", run.Ports[id]) }

// Check ends the process on an error.
func Check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Measure lets each width of callers repeat request, each awaiting its own, and prints a row per width.
func (run Run) Measure(name string, request func(data []byte) error) {
	for _, width := range run.Widths {
		run.callers(width, min(0.3, run.Seconds/4), request)
		latencies, elapsed := run.callers(width, run.Seconds, request)
		sort.Float64s(latencies)
		at := func(share float64) float64 {
			return latencies[min(int(float64(len(latencies))*share), len(latencies)-1)] * 1e3
		}
		line, err := json.Marshal(row{name, width, run.Size, float64(len(latencies)) / elapsed, at(0.5), at(0.99)})
		Check(err)
		fmt.Println(string(line))
	}
}

func (run Run) callers(width int, seconds float64, request func([]byte) error) ([]float64, float64) {
	data := make([]byte, run.Size)
	start := time.Now()
	stop := start.Add(time.Duration(seconds * 1e9))
	kept := make([][]float64, width)
	var all sync.WaitGroup
	for i := range kept {
		all.Add(1)
		go func() {
			defer all.Done()
			for begun := time.Now(); begun.Before(stop); begun = time.Now() {
				Check(request(data))
				kept[i] = append(kept[i], time.Since(begun).Seconds())
			}
		}()
	}
	all.Wait()
	elapsed := time.Since(start).Seconds()
	var latencies []float64
	for _, some := range kept {
		latencies = append(latencies, some...)
	}
	return latencies, elapsed
}

// Done tells the benchmark that all rows are out, and waits to be killed.
func Done() {
	fmt.Println("done")
	select {}
}
