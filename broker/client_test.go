package broker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tandem/codec"
	"tandem/engine"
)

// listeningClient is a client that hears the broker's own requests.
type listeningClient struct {
	client *engine.Client
	addr   string
}

func newListeningClient(t *testing.T, addr string, notified chan<- string) *listeningClient {
	c := &listeningClient{addr: addr, client: engine.NewClient(engine.ClientOptions{CallTimeout: 10 * time.Second,
		OnRequest: func(_ string, cmd *codec.Command) *codec.Command {
			notified <- cmd.Ext["consumerGroup"]
			return nil
		}})}
	t.Cleanup(c.close)
	return c
}

func (c *listeningClient) call(t *testing.T, code codec.RequestCode, ext map[string]string, body []byte) {
	t.Helper()
	resp, err := c.client.Call(testContext(t), c.addr, codec.NewRequest(code, ext, body))
	require.NoError(t, err)
	require.Equal(t, codec.Success, resp.Code, resp.Remark)
}

func (c *listeningClient) close() { c.client.Close() }
