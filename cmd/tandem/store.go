package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"tandem/codec"
	"tandem/commitlog"
)

func newStoreCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Look at stores that no broker has open",
	}
	cmd.AddCommand(newVerifyCommand(), newDiffCommand(), newDumpCommand())
	return cmd
}

// oneDirectory and twoDirectories check the arguments of the store commands.
func oneDirectory(_ *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return usagef("DIR is missing")
	case 1:
		return checkDirectory(args[0])
	default:
		return usagef("%q: one directory is enough", args[1])
	}
}

func twoDirectories(_ *cobra.Command, args []string) error {
	if len(args) != 2 {
		return usagef("two directories are compared, %d given", len(args))
	}
	for _, dir := range args {
		if err := checkDirectory(dir); err != nil {
			return err
		}
	}
	return nil
}

// checkDirectory takes a store's directory, or that of its segments alone.
func checkDirectory(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case os.IsNotExist(err):
		return usagef("%s: no such directory", dir)
	case err != nil:
		return usageError(err)
	case !info.IsDir():
		return usagef("%s: not a directory", dir)
	}
	if _, err := os.Stat(filepath.Join(dir, "commitlog")); err == nil {
		return nil
	}
	// A segment is named by the 20 digits of its first offset.
	if segments, _ := filepath.Glob(filepath.Join(dir, strings.Repeat("[0-9]", 20))); len(segments) == 0 {
		return usagef("%s: not a store, there is no commitlog in it", dir)
	}
	return nil
}

func newVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify DIR",
		Short: "Check every record, checksum and consume queue entry",
		Long: `Reads a store without changing it: every record and checksum of the commit log, and whether messages and consume queue entries
agree one to one. Exit status 1 where something is wrong; what is wrong is printed.`,
		Args: oneDirectory,
		RunE: func(cmd *cobra.Command, args []string) error {
			done := working(cmd.ErrOrStderr(), "reading "+args[0])
			var found bytes.Buffer
			report, err := commitlog.Verify(args[0], &found)
			done()
			return conclusion(cmd.OutOrStdout(), found.String(), report.OK(), err)
		},
	}
}

func newDiffCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "diff DIR DIR",
		Short: "Compare two stores' commit logs",
		Long: `Compares the bytes of two commit logs over the range that both hold, those of a master and its slave for example. Exit status 0
only if they are equal and end at the same offset.`,
		Args: twoDirectories,
		RunE: func(cmd *cobra.Command, args []string) error {
			done := working(cmd.ErrOrStderr(), "comparing")
			report, err := commitlog.Diff(args[0], args[1])
			done()
			return conclusion(cmd.OutOrStdout(), report.String()+"\n", report.Identical(), err)
		},
	}
}

// conclusion prints what was found, and ends with status 1 where it does not hold.
func conclusion(w io.Writer, found string, holds bool, err error) error {
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, found); err != nil {
		return err
	}
	if !holds {
		return errDoesNotHold
	}
	return nil
}

func newDumpCommand() *cobra.Command {
	var topic string
	var noBody bool
	cmd := &cobra.Command{
		Use:   "dump DIR",
		Short: "Print every record as a line of JSON",
		Long: `Prints the records of a store in the order of the log, one JSON object a line; bodies in base64, times in ms since 1970.
Exit status 1 if the log can't be read to its end.`,
		Args: oneDirectory,
		RunE: func(cmd *cobra.Command, args []string) error {
			out := bufio.NewWriter(cmd.OutOrStdout())
			lines := json.NewEncoder(out)
			lines.SetEscapeHTML(false)
			err := commitlog.Dump(args[0], func(r codec.Record) error {
				if topic != "" && topic != string(r.Topic) {
					return nil
				}
				return lines.Encode(dumped(&r, noBody))
			})
			return errors.Join(err, out.Flush())
		},
	}
	cmd.Flags().StringVar(&topic, "topic", "", "only records of this topic")
	cmd.Flags().BoolVar(&noBody, "noBody", false, "leave the bodies out")
	return cmd
}

// dumpedRecord is one line of a dump.
type dumpedRecord struct {
	Offset            int64             `json:"offset"`
	Size              int               `json:"size"`
	Topic             string            `json:"topic"`
	QueueID           int32             `json:"queueId"`
	QueueOffset       int64             `json:"queueOffset"`
	SysFlag           int32             `json:"sysFlag"`
	Flag              int32             `json:"flag"`
	BornTimestamp     int64             `json:"bornTimestamp"`
	BornHost          string            `json:"bornHost"`
	StoreTimestamp    int64             `json:"storeTimestamp"`
	StoreHost         string            `json:"storeHost"`
	MessageID         string            `json:"msgId"`
	ReconsumeTimes    int32             `json:"reconsumeTimes"`
	TransactionOffset int64             `json:"preparedTransactionOffset"`
	BodyCRC           uint32            `json:"bodyCrc"`
	BodyLength        int               `json:"bodyLength"`
	Properties        map[string]string `json:"properties"`
	Body              []byte            `json:"body,omitempty"`
}

func dumped(r *codec.Record, noBody bool) dumpedRecord {
	d := dumpedRecord{Offset: r.PhysicalOffset, Size: r.Size(), Topic: string(r.Topic), QueueID: r.QueueID, QueueOffset: r.QueueOffset,
		SysFlag: r.SysFlag, Flag: r.Flag, BornTimestamp: r.BornTimestamp, BornHost: r.BornHost.String(), StoreTimestamp: r.StoreTimestamp,
		StoreHost: r.StoreHost.String(), MessageID: codec.MessageID(r.StoreHost, r.PhysicalOffset), ReconsumeTimes: r.ReconsumeTimes,
		TransactionOffset: r.PreparedTransactionOffset, BodyCRC: r.BodyCRC, BodyLength: len(r.Body), Properties: map[string]string{}}
	codec.EachProperty(r.Properties, func(name, value []byte) bool {
		d.Properties[string(name)] = string(value)
		return true
	})
	if !noBody {
		d.Body = r.Body
	}
	return d
}

// working shows on a terminal that something is going on, until the returned function is called.
func working(w io.Writer, what string) (done func()) {
	if !isTerminal(w) {
		return func() {}
	}
	bar := progressbar.NewOptions64(-1, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription(what),
		progressbar.OptionClearOnFinish(), progressbar.OptionSetElapsedTime(true))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = bar.Add(1) // a spinner that can't be drawn stops nothing
			case <-stop:
				_ = bar.Clear()
				return
			}
		}
	}()
	return func() { close(stop); <-stopped }
}
