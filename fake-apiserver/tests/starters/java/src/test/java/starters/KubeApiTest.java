package starters;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.fabric8.kubeapitest.junit.EnableKubeAPIServer;
import io.fabric8.kubeapitest.junit.KubeConfig;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import java.util.Map;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

@EnableKubeAPIServer
class KubeApiTest {
  @KubeConfig
  static String kubeconfig;

  @Test
  void anObjectIsStored() {
    try (var client = new KubernetesClientBuilder().withConfig(Config.fromKubeconfig(kubeconfig)).build()) {
      var map = new ConfigMapBuilder().withNewMetadata().withName("settings").withNamespace("default").endMetadata()
          .withData(Map.of("key", "value")).build();
      client.resource(map).create();
      assertEquals(Map.of("key", "value"), client.resource(map).get().getData());
    }
  }

  /** fabric8 opens every watch over a WebSocket. */
  @Test
  void aWatchDeliversChanges() throws InterruptedException {
    var events = new LinkedBlockingQueue<String>();
    var watcher = new Watcher<ConfigMap>() {
      @Override
      public void eventReceived(Action action, ConfigMap map) {
        events.add(action + " " + map.getData());
      }

      @Override
      public void onClose(WatcherException cause) {
      }
    };
    try (var client = new KubernetesClientBuilder().withConfig(Config.fromKubeconfig(kubeconfig)).build()) {
      var maps = client.configMaps().inNamespace("default");
      var map = new ConfigMapBuilder().withNewMetadata().withName("watched").endMetadata()
          .withData(Map.of("key", "1")).build();
      try (var watch = maps.withName("watched").watch(watcher)) {
        maps.resource(map).create();
        assertEquals("ADDED {key=1}", events.poll(20, TimeUnit.SECONDS));
        maps.withName("watched").edit(it -> new ConfigMapBuilder(it).addToData("key", "2").build());
        assertEquals("MODIFIED {key=2}", events.poll(20, TimeUnit.SECONDS));
        maps.withName("watched").waitUntilCondition(it -> it.getData().get("key").equals("2"), 20, TimeUnit.SECONDS);
        maps.withName("watched").delete();
        assertEquals("DELETED {key=2}", events.poll(20, TimeUnit.SECONDS));
      }
    }
  }
}
