// Burn is the load of the tests' pods.
//
//	burn spin N           keep N processors busy
//	burn fill MIB [MIB_S] take memory, all at once or so much a second, and hold it
//	burn serve HZ WORK_US answer so many requests a second, each so much work; a line of JSON each second:
//	                      how many, and the latency's median and 99th percentile in microseconds
package main

import (
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"time"
)

// work does a fixed number of rounds: the same work takes longer where the processor is taken away.
func work(rounds int) (sum uint64) {
	for i := 0; i < rounds; i++ {
		sum = sum*6364136223846793005 + 1442695040888963407
	}
	return sum
}

func spin(processors int) {
	runtime.GOMAXPROCS(processors + 1)
	for i := 0; i < processors; i++ {
		go func() {
			for {
				work(1 << 20)
			}
		}()
	}
	select {}
}

func fill(mib, perSecond int) {
	held := make([][]byte, 0, mib)
	for len(held) < mib {
		page := make([]byte, 1<<20)
		for at := 0; at < len(page); at += 4096 {
			page[at] = 1
		}
		held = append(held, page)
		if perSecond > 0 {
			time.Sleep(time.Second / time.Duration(perSecond))
		}
	}
	fmt.Println("filled")
	for {
		time.Sleep(time.Hour)
		runtime.KeepAlive(held)
	}
}

// calibrate says how many rounds take the time, at the best of several tries.
func calibrate(want time.Duration) int {
	const rounds = 1 << 20
	best := time.Hour
	for i := 0; i < 20; i++ {
		begin := time.Now()
		work(rounds)
		best = min(best, time.Since(begin))
	}
	return int(float64(rounds) * float64(want) / float64(best))
}

// serve measures from when a request was due, so that one that waited for another counts its wait.
func serve(hz, workMicros int) {
	rounds := calibrate(time.Duration(workMicros) * time.Microsecond)
	every := time.Second / time.Duration(hz)
	due := time.Now()
	for {
		taken := make([]int64, 0, hz)
		for len(taken) < hz {
			due = due.Add(every)
			time.Sleep(time.Until(due))
			work(rounds)
			taken = append(taken, time.Since(due).Microseconds())
		}
		sort.Slice(taken, func(a, b int) bool { return taken[a] < taken[b] })
		fmt.Printf("{\"requests\": %d, \"p50_us\": %d, \"p99_us\": %d}\n", hz, taken[hz/2], taken[hz*99/100])
	}
}

func number(at, otherwise int) int {
	if len(os.Args) <= at {
		return otherwise
	}
	told, err := strconv.Atoi(os.Args[at])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	return told
}

func main() {
	switch {
	case len(os.Args) > 2 && os.Args[1] == "spin":
		spin(number(2, 1))
	case len(os.Args) > 2 && os.Args[1] == "fill":
		fill(number(2, 1), number(3, 0))
	case len(os.Args) > 3 && os.Args[1] == "serve":
		serve(number(2, 100), number(3, 1000))
	default:
		fmt.Fprintln(os.Stderr, "burn spin N | fill MIB [MIB_S] | serve HZ WORK_US")
		os.Exit(2)
	}
}
