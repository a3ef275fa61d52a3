// Decodes a segment that is in memory with franz-go: answers each line on stdin with "nanoseconds records value_bytes".
package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const processCPUTime = 2

func cpuNanoseconds() int64 {
	var now syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, processCPUTime, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

// fetches cuts a log into slices of whole batches, as a fetch would bring them.
func fetches(log []byte) [][]byte {
	var slices [][]byte
	start := 0
	for at := 0; at < len(log); {
		at += 12 + int(binary.BigEndian.Uint32(log[at+8:]))
		if at-start >= 1<<20 || at == len(log) {
			slices = append(slices, log[start:at])
			start = at
		}
	}
	return slices
}

func main() {
	runtime.GOMAXPROCS(1)
	log, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	slices, decompressor := fetches(log), kgo.DefaultDecompressor()
	var key byte
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		runtime.GC() // what the pass before has left is not this one's
		begin := cpuNanoseconds()
		nRecords, valueBytes := 0, 0
		for _, slice := range slices {
			response := kmsg.NewFetchResponseTopicPartition()
			response.RecordBatches = slice
			partition, _ := kgo.ProcessFetchPartition(
				kgo.ProcessFetchPartitionOpts{Topic: "bench"}, &response, decompressor, nil)
			if partition.Err != nil {
				panic(partition.Err)
			}
			for _, record := range partition.Records {
				nRecords++
				valueBytes += len(record.Value)
				if len(record.Key) > 0 {
					key ^= record.Key[0]
				}
			}
		}
		fmt.Println(cpuNanoseconds()-begin, nRecords, valueBytes)
	}
	runtime.KeepAlive(key)
}
