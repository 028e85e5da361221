package main

import (
	"github.com/spf13/cobra"

	"tandem/bench/part"
)

// newBenchPartCommand has the far sides of bare measurements. The measurements start them; they are of no use alone.
func newBenchPartCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "part", Short: "A process of a bare measurement", Hidden: true}
	cmd.AddCommand(newEchoCommand(), newStubCommand(), newReceiverCommand(), newSinkCommand())
	return cmd
}

// partCommand runs the part, which is asked for once its flags are read.
func partCommand(name, short string, the func() part.Part) *cobra.Command {
	return &cobra.Command{Use: name, Short: short, RunE: func(cmd *cobra.Command, _ []string) error {
		ctx, stop := untilSignal(cmd.Context())
		defer stop()
		return the().Serve(ctx, cmd.OutOrStdout())
	}}
}

const (
	anyPort     = "127.0.0.1:0"
	listenUsage = "host:port to listen on"
)

func newEchoCommand() *cobra.Command {
	var e part.Echo
	cmd := partCommand("echo", "Answer requests of a fixed size", func() part.Part { return e })
	f := cmd.Flags()
	f.StringVar(&e.Listen, "listen", anyPort, listenUsage)
	f.IntVar(&e.Request, "request", 1, "bytes of a request")
	f.IntVar(&e.Answer, "answer", 1, "bytes of an answer")
	f.StringVar(&e.Next, "next", "", "host:port to ask before each answer")
	f.IntVar(&e.NextRequest, "nextRequest", 1, "bytes sent there")
	f.IntVar(&e.NextAnswer, "nextAnswer", 1, "bytes awaited from there")
	return cmd
}

func newStubCommand() *cobra.Command {
	var s part.Stub
	cmd := partCommand("stub", "Answer all frames alike", func() part.Part { return s })
	cmd.Flags().StringVar(&s.Listen, "listen", anyPort, listenUsage)
	cmd.Flags().IntVar(&s.Loops, "loops", 0, "event loops; 0: half of the processors")
	return cmd
}

func newReceiverCommand() *cobra.Command {
	var r part.Receiver
	cmd := partCommand("receiver", "Take one stream into a mapped file", func() part.Part { return r })
	cmd.Flags().StringVar(&r.Listen, "listen", anyPort, listenUsage)
	cmd.Flags().StringVar(&r.File, "file", "", "path of the new file; removed at the end")
	cmd.Flags().Int64Var(&r.Bytes, "bytes", 0, "bytes to take")
	return cmd
}

func newSinkCommand() *cobra.Command {
	var s part.Sink
	cmd := partCommand("sink", "Follow a master and keep nothing", func() part.Part { return s })
	cmd.Flags().StringVar(&s.Master, "master", "", "host:port of the master's replication")
	cmd.Flags().Int64Var(&s.From, "from", 0, "first offset asked for")
	return cmd
}
