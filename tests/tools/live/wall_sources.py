"""Walls as their vendors' HTML has them, and fetched pages that talk of such things."""

FETCHED_WALLS = {
    "reddit": (
        "<html><head><title>Blocked</title></head><body><h1>You've been blocked by network "
        "security.</h1><p>To continue, log in to your Reddit account or use your developer "
        "token</p><p>If you think you've been blocked by mistake, file a ticket below and "
        "we'll look into it.</p><a>Log in</a><a>File a ticket</a></body></html>"
    ),
    "reddit2": (
        "<html><head><title>reddit.com: Too Many Requests</title></head><body><h1>whoa there, "
        "pardner!</h1><p>Your request has been blocked due to a network policy.</p><p>Try "
        "logging in or creating an account here to get back to browsing.</p><p>If you're "
        "running a script or application, please register or sign in with your developer "
        "credentials here. Additionally make sure your User-Agent is not empty and is "
        "something unique and descriptive and try again.</p></body></html>"
    ),
    "akamai": (
        "<html><head><title>Access Denied</title></head><body><H1>Access Denied</H1>You don't "
        'have permission to access "http&#58;&#47;&#47;www&#46;example&#46;com&#47;" on this '
        "server.<P>Reference&#32;&#35;18&#46;5d1e6c17&#46;1700000000&#46;1a2b3c4d<P>https"
        "&#58;&#47;&#47;errors&#46;edgesuite&#46;net&#47;18&#46;5d1e6c17</body></html>"
    ),
    "akamai_bm": (
        '<html><head><title>&nbsp;</title><meta http-equiv="refresh" content="5; '
        "URL='/?bm-verify=AAQ'\"/></head><body><noscript>Please enable "
        "JavaScript</noscript></body></html>"
    ),
    "dd": (
        '<html><head><title>example.com</title></head><body><p id="cmsg">Please enable JS and '
        "disable any ad blocker</p><script>var "
        "dd={'rt':'c','cid':'x','host':'geo.captcha-delivery.com'}</script></body></html>"
    ),
    "px": (
        "<html><head><title>Access to this page has been "
        "denied.</title></head><body><div><p>Press & Hold to confirm you are a human (and not "
        "a bot).</p><p>Reference ID abc-def</p></div></body></html>"
    ),
    "px2": (
        "<html><head><title>Access to this page has been denied</title></head><body><p>Access "
        "to this page has been denied because we believe you are using automation tools to "
        "browse the website.</p><p>This may happen as a result of the "
        "following:</p><ul><li>Javascript is disabled or blocked by an extension (ad blockers "
        "for example)</li><li>Your browser does not support cookies</li></ul><p>Please make "
        "sure that Javascript and cookies are enabled on your browser and that you are not "
        "blocking them from loading.</p><p>Reference ID: #1234</p><p>Powered by PerimeterX, "
        "Inc.</p></body></html>"
    ),
    "cf1020": (
        "<html><head><title>Access denied | example.com used Cloudflare to restrict "
        "access</title></head><body><h1>Error 1020</h1><p>Ray ID: 7d • "
        "2024-01-01</p><h2>Access denied</h2><h2>What happened?</h2><p>This website is using a "
        "security service to protect itself from online attacks.</p><p>Cloudflare Ray ID: "
        "7d</p><p>Your IP: 1.2.3.4</p><p>Performance &amp; security by "
        "Cloudflare</p></body></html>"
    ),
    "cf_block": (
        "<html><head><title>Attention Required! | Cloudflare</title></head><body><h1>Sorry, "
        "you have been blocked</h1><h2>You are unable to access example.com</h2><h2>Why have I "
        "been blocked?</h2><p>This website is using a security service to protect itself from "
        "online attacks. The action you just performed triggered the security solution. There "
        "are several actions that could trigger this block including submitting a certain word "
        "or phrase, a SQL command or malformed data.</p><h2>What can I do to resolve "
        "this?</h2><p>You can email the site owner to let them know you were blocked. Please "
        "include what you were doing when this page came up and the Cloudflare Ray ID found at "
        "the bottom of this page.</p><p>Cloudflare Ray ID: 8a • Your IP: Click to "
        "reveal</p></body></html>"
    ),
    "imperva": (
        "<html><head><title></title></head><body><iframe "
        'src="/_Incapsula_Resource?CWUDNSAI=23">Request unsuccessful. Incapsula incident ID: '
        "123-456</iframe></body></html>"
    ),
    "imperva2": (
        "<html><head><title>Pardon Our Interruption</title></head><body><h1>Pardon Our "
        "Interruption</h1><p>As you were browsing something about your browser made us think "
        "you were a bot. There are a few reasons this might happen:</p><ul><li>You've disabled "
        "cookies in your web browser.</li><li>You're a power user moving through this website "
        "with super-human speed.</li><li>A third-party browser plugin, such as Ghostery or "
        "NoScript, is preventing JavaScript from running. Additional information is available "
        "in this support article.</li></ul><p>To regain access, please make sure that cookies "
        "and JavaScript are enabled before reloading the page.</p></body></html>"
    ),
    "aws": (
        "<html><head><title>Human Verification</title></head><body><div "
        "id='captcha-container'></div><noscript><h1>JavaScript is disabled</h1>In order to "
        "continue, we need to verify that you're not a robot. This requires JavaScript. Enable "
        "JavaScript and then reload the page.</noscript></body></html>"
    ),
    "amazon": (
        "<html><head><title>Amazon.com</title></head><body><h4>Enter the characters you see "
        "below</h4><p>Sorry, we just need to make sure you're not a robot. For best results, "
        "please make sure your browser is accepting cookies.</p><h4>Type the characters you "
        "see in this image:</h4><a>Try different image</a><button>Continue "
        "shopping</button><a>Conditions of Use</a><a>Privacy Policy</a><p>© 1996-2014, "
        "Amazon.com, Inc. or its affiliates</p></body></html>"
    ),
    "amazon2": (
        "<html><head><title>Amazon.com</title></head><body><h4>Click the button below to "
        "continue shopping</h4><button>Continue shopping</button><a>Conditions of Use</a> "
        "<a>Privacy Policy</a> © 1996-2025, Amazon.com, Inc. or its affiliates</body></html>"
    ),
    "google": (
        "<html><head><title>https://www.google.com/search?q=x</title></head><body><p>Our "
        "systems have detected unusual traffic from your computer network. This page checks to "
        "see if it's really you sending the requests, and not a robot. Why did this "
        "happen?</p><p>IP address: 1.2.3.4<br>Time: 2024-01-01T00:00:00Z</p></body></html>"
    ),
    "anubis": (
        "<html><head><title>Making sure you're not a bot!</title></head><body><h1>Making sure "
        "you're not a bot!</h1><p>Loading...</p><details>You are seeing this because the "
        "administrator of this website has set up Anubis to protect the server against the "
        "scourge of AI companies aggressively scraping websites. This can and does cause "
        "downtime for the websites, which makes their resources inaccessible for everyone. "
        "Anubis is a compromise.</details></body></html>"
    ),
    "vercel": (
        "<html><head><title>Vercel Security Checkpoint</title></head><body><p>We're verifying "
        "your browser</p><a>Website owner? Click here to fix</a><p>Vercel Security Checkpoint "
        "| arn1::1700</p></body></html>"
    ),
    "sucuri": (
        "<html><head><title>Sucuri WebSite Firewall - Access "
        "Denied</title></head><body><h1>Access Denied - Sucuri Website Firewall</h1><p>If you "
        "are the site owner (or you manage this site), please whitelist your IP or if you "
        "think this block is an error please open a support ticket and make sure to include "
        "the block details (displayed in the box below), so we can assist you in "
        "troubleshooting the issue.</p><h2>Block details:</h2><table><tr><td>Your "
        "IP:</td><td>1.2.3.4</td></tr><tr><td>Block reason:</td><td>An attempted attack was "
        "detected and blocked.</td></tr></table></body></html>"
    ),
    "ddosguard": (
        "<html><head><title>DDoS-Guard</title></head><body><h1>Checking your browser before "
        "accessing example.com</h1><p>Please wait a few seconds. Once this check is complete, "
        "the website will open automatically</p><p>DDoS protection by "
        "DDoS-Guard</p></body></html>"
    ),
    "f5": (
        "<html><head><title>Request Rejected</title></head><body>The requested URL was "
        "rejected. Please consult with your administrator.<br><br>Your support ID is: "
        "123456789<br><br><a href='javascript:history.back();'>[Go Back]</a></body></html>"
    ),
    "wordfence": (
        "<html><head><title>Your access to this site has been "
        "limited</title></head><body><h1>Your access to this site has been limited by the site "
        "owner</h1><p>Your access to this service has been limited. (HTTP response code "
        "503)</p><p>If you think you have been blocked in error, contact the owner of this "
        "site for assistance.</p><p>Block Technical Data</p><p>Block Reason: Access from your "
        "area has been temporarily limited for security reasons.</p><p>Generated by Wordfence "
        "at Mon</p></body></html>"
    ),
    "hcaptcha": (
        "<html><head><title>Verify you are human</title></head><body><p>One more step before "
        "you proceed...</p><div class='h-captcha'></div><p>Please complete the security "
        "check</p></body></html>"
    ),
    "yandex": (
        "<html><head><title>Вы не робот?</title></head><body><h1>Подтвердите, что запросы "
        "отправляли вы, а не робот</h1><p>Нам очень жаль, но запросы с вашего устройства "
        "похожи на автоматические.</p></body></html>"
    ),
    "baidu": (
        "<html><head><title>百度安全验证</title></head><body><p>网络不给力，请稍后重试</p"
        "><p>返回首页</p><p>问题反馈</p></body></html>"
    ),
    "sogou": (
        "<html><head><title>搜狗搜索</title></head><body><p>此验证码用于确认这些请求是您的"
        "正常行为而不是自动程序发出的，需要您协助验证。</p></body></html>"
    ),
    "zhihu": (
        "<html><head><title>安全验证 - "
        "知乎</title></head><body><p>系统监测到您的网络环境存在异常，为保证您的正常访问，"
        "请点击下方验证按钮进行验证。</p></body></html>"
    ),
    "wechat": (
        "<html><head><title>微信公众平台</title></head><body><h2>环境异常</h2><p>当前环境"
        "异常，完成验证后即可继续访问。</p><a>去验证</a></body></html>"
    ),
    "naver": (
        "<html><head><title>네이버</title></head><body><p>비정상적인 접근이 감지되었습니다"
        ". 자동입력 방지를 위해 보안 절차를 "
        "거치고 있습니다.</p></body></html>"
    ),
    "x": (
        "<html><head><title>x.com</title></head><body><h1>JavaScript is not "
        "available.</h1><p>We’ve detected that JavaScript is disabled in this browser. Please "
        "enable JavaScript or switch to a supported browser to continue using x.com. You can "
        "see a list of supported browsers in our Help Center.</p><p>Help Center</p><p>Terms of "
        "Service Privacy Policy Cookie Policy Imprint Ads info © 2024 X Corp.</p></body></html>"
    ),
    "react": (
        "<html><head><title>React App</title></head><body><noscript>You need to enable "
        "JavaScript to run this app.</noscript><div id='root'></div></body></html>"
    ),
    "vue": (
        "<html><head><title>app</title></head><body><noscript><strong>We're sorry but app "
        "doesn't work properly without JavaScript enabled. Please enable it to "
        "continue.</strong></noscript><div id=app></div></body></html>"
    ),
    "medium": (
        "<html><head><title>Just a moment...</title></head><body><p>Enable JavaScript and "
        "cookies to continue</p></body></html>"
    ),
    "researchgate": (
        "<html><head><title>ResearchGate - Temporarily "
        "Unavailable</title></head><body><p>Security check required</p><p>We've detected "
        "unusual activity from your network. To continue, complete the security check "
        "below.</p><p>Ray ID: 8c</p><p>Client IP: 1.2.3.4</p><p>© 2008-2024 ResearchGate GmbH. "
        "All rights reserved.</p></body></html>"
    ),
    "sciencedirect": (
        "<html><head><title>ScienceDirect</title></head><body><p>There was a problem providing "
        "the content you requested</p><p>Please contact our support team for more information "
        "and provide the details below.</p><p>Reference number: 8c</p><p>IP Address: "
        "1.2.3.4</p><p>Timestamp: 2024</p></body></html>"
    ),
    "sciencedirect2": (
        "<html><head><title>ScienceDirect</title></head><body><h1>Are you a "
        "robot?</h1><p>Please confirm you are a human by completing the captcha challenge "
        "below.</p><p>Reference number: 8c</p><p>IP Address: 1.2.3.4</p></body></html>"
    ),
    "bloomberg": (
        "<html><head><title>Bloomberg - Are you a robot?</title></head><body><h2>We've "
        "detected unusual activity from your computer network</h2><p>To continue, please click "
        "the box below to let us know you're not a robot.</p><h3>Why did this "
        "happen?</h3><p>Please make sure your browser supports JavaScript and cookies and that "
        "you are not blocking them from loading. For more information you can review our Terms "
        "of Service and Cookie Policy.</p><h3>Need Help?</h3><p>For inquiries related to this "
        "message please contact our support team and provide the reference ID "
        "below.</p><p>Block reference ID:</p></body></html>"
    ),
    "wapo": (
        "<html><head><title>nytimes.com</title></head><body><p>Please enable JS and disable "
        "any ad blocker</p></body></html>"
    ),
    "crunchbase": (
        "<html><head><title>crunchbase.com</title></head><body><h1>Please verify you are a "
        "human</h1><p>Access to this page has been denied because we believe you are using "
        "automation tools to browse the website.</p></body></html>"
    ),
    "glassdoor": (
        "<html><head><title>Security | Glassdoor</title></head><body><h1>Help Us Protect "
        "Glassdoor</h1><p>Please help us protect Glassdoor by verifying that you're a real "
        "person. We are sorry for the inconvenience. If you continue to see this message, "
        "please email us to let us know you're having trouble.</p></body></html>"
    ),
    "tripadvisor": (
        "<html><head><title>tripadvisor.com</title></head><body><p>Please enable JS and "
        "disable any ad blocker</p></body></html>"
    ),
    "siteground": (
        "<html><head><title>Robot Challenge Screen</title></head><body><p>Checking the site "
        "connection security</p><p>www.example.com is an available on this "
        "server.</p></body></html>"
    ),
    "turnstile_de": (
        "<html><head><title>Nur einen "
        "Moment…</title></head><body><h1>example.org</h1><p>Bestätigen Sie, dass Sie ein "
        "Mensch sind. Dies kann ein paar Sekunden dauern.</p><p>example.org muss die "
        "Sicherheit Ihrer Verbindung überprüfen, bevor Sie fortfahren können.</p></body></html>"
    ),
    "turnstile_fr": (
        "<html><head><title>Un instant…</title></head><body><h1>example.org</h1><p>Vérifiez "
        "que vous êtes humain en effectuant l’action ci-dessous.</p></body></html>"
    ),
    "turnstile_ja": (
        "<html><head><title>しばらくお待ちください...</title></head><body><h1>example.org"
        "</h1><p>人間であることを確認します。これには数秒かかる場合があります。</p><p>続行"
        "する前に、example.org "
        "は接続のセキュリティを確認する必要があります。</p></body></html>"
    ),
    "turnstile_es": (
        "<html><head><title>Un momento…</title></head><body><h1>example.org</h1><p>Verificar "
        "que usted es un ser humano. Esto puede tardar unos segundos.</p></body></html>"
    ),
    "turnstile_pt": (
        "<html><head><title>Um momento…</title></head><body><h1>example.org</h1><p>Confirme "
        "que você é humano. Isso pode levar alguns segundos.</p></body></html>"
    ),
    "turnstile_ko": (
        "<html><head><title>잠시만 기다리십시오…</title></head><body><h1>example.org</h1>"
        "<p>사람인지 확인하는 "
        "중입니다. 몇 초 정도 걸릴 수 있습니다.</p></body></html>"
    ),
    "turnstile_it": (
        "<html><head><title>Un attimo…</title></head><body><h1>example.org</h1><p>Verifica che "
        "tu sia un essere umano. L'operazione potrebbe richiedere alcuni "
        "secondi.</p></body></html>"
    ),
    "turnstile_tr": (
        "<html><head><title>Bir dakika "
        "lütfen...</title></head><body><h1>example.org</h1><p>İnsan olduğunuz doğrulanıyor. Bu "
        "işlem birkaç saniye sürebilir.</p></body></html>"
    ),
    "turnstile_pl": (
        "<html><head><title>Cierpliwości...</title></head><body><h1>example.org</h1><p>Po"
        "twierdź, "
        "że jesteś człowiekiem. To może zająć kilka sekund.</p></body></html>"
    ),
    "gdpr_yahoo": (
        "<html><head><title>Yahoo is part of the Yahoo family of "
        "brands</title></head><body><form "
        "action='https://consent.yahoo.com/v2/collectConsent'><h1>We value your "
        "privacy</h1><p>If you click 'Accept all', we and our partners will store and access "
        "information on a device through the use of cookies.</p><button>Accept "
        "all</button><button>Reject all</button></form></body></html>"
    ),
    "unhuman_ebay": (
        "<html><head><title>Pardon Our Interruption...</title></head><body><p>Checking your "
        "browser before you access eBay. Please wait...</p><p>Your browser will redirect to "
        "your requested content shortly.</p></body></html>"
    ),
    "walmart": (
        "<html><head><title>Robot or human?</title></head><body><h1>Robot or "
        "human?</h1><p>Activate and hold the button to confirm that you’re human. Thank "
        "You!</p></body></html>"
    ),
    "zillow": (
        "<html><head><title>Access to this page has been denied</title></head><body><p>Press "
        "&amp; Hold to confirm you are</p><p>a human (and not a bot).</p></body></html>"
    ),
    "indeed": (
        "<html><head><title>Additional Verification "
        "Required</title></head><body><h1>Additional Verification Required</h1><p>Your Ray ID "
        "for this request is 8c</p><p>Need more help? Contact us</p></body></html>"
    ),
    "openai": (
        "<html><head><title>chatgpt.com</title></head><body><p>Verify you are human by "
        "completing the action below.</p><p>chatgpt.com needs to review the security of your "
        "connection before proceeding.</p></body></html>"
    ),
    "ratelimit": (
        "<html><head><title>Too Many Requests</title></head><body><h1>Too Many "
        "Requests</h1><p>You have sent too many requests in a given amount of "
        "time.</p></body></html>"
    ),
    "go-away": (
        "<html><head><title>Checking you are not a bot</title></head><body><h1>Checking you "
        "are not a bot</h1><p>This process is automatic. Your browser will redirect to your "
        "requested content shortly.</p></body></html>"
    ),
}

FETCHED_PAGES = {
    "blog_anubis": (
        "<html><head><title>Why we run Anubis</title></head><body><p>Last week we put Anubis "
        "in front of our forge. It shows a page that says 'Making sure you're not a bot!' and "
        "makes the browser do a proof of work.</p><p>Traffic fell by 90 percent and the server "
        "is quiet again.</p></body></html>"
    ),
    "wiki_captcha": (
        "<html><head><title>CAPTCHA - Wikipedia</title></head><body><p>A CAPTCHA is a type of "
        "challenge–response test used in computing to determine whether the user is human. The "
        "term was coined in 2003 by Luis von Ahn, Manuel Blum, Nicholas J. Hopper, and John "
        "Langford.</p></body></html>"
    ),
    "so_js": (
        "<html><head><title>How do I detect that JavaScript is "
        "disabled?</title></head><body><p>I want to show a message: please enable JavaScript "
        "to continue. Use a noscript element: its content is shown only where scripts are "
        "off.</p></body></html>"
    ),
    "film": (
        "<html><head><title>Just a Moment</title></head><body><p>Just a Moment is a 1912 film "
        "by Ada Lin about a miller. It was shot in Salen.</p></body></html>"
    ),
    "song": (
        "<html><head><title>Are You a Robot? - Lyrics</title></head><body><p>Are You a Robot "
        "is the second single of the band Tin Mill, released in 1998 on Weir "
        "Records.</p></body></html>"
    ),
    "form_page": (
        "<html><head><title>Contact the mill</title></head><body><p>Write to the Salen mill "
        "museum, Weir Street 4.</p><form><div "
        "class='g-recaptcha'></div><button>Send</button></form><p>Protected by "
        "reCAPTCHA</p></body></html>"
    ),
    "access_denied_news": (
        "<html><head><title>Access denied: journalists shut out of "
        "court</title></head><body><p>Reporters were denied access to the trial of the mill's "
        "owner on Monday, the third time this year.</p></body></html>"
    ),
    "cf_docs": (
        "<html><head><title>Error 1020: Access Denied · Cloudflare Support "
        "docs</title></head><body><p>Error 1020 indicates that a client was blocked by a WAF "
        "custom rule. To resolve it, ask the site's owner for the rule that matched the Ray "
        "ID.</p></body></html>"
    ),
    "short_fact": (
        "<html><head><title>Salen mill</title></head><body><p>The mill was built in "
        "1912.</p></body></html>"
    ),
    "short_fact_noscript": (
        "<html><head><title>Salen mill</title></head><body><p>The mill was built in "
        "1912.</p><noscript>Please enable JavaScript to view the comments powered by "
        "Disqus.</noscript></body></html>"
    ),
    "cookie_banner": (
        "<html><head><title>Salen mill</title></head><body><div>We use cookies to improve your "
        "experience. Accept all Reject all</div><p>The mill of Salen was built in 1912 by Ada "
        "Lin.</p></body></html>"
    ),
    "verify_human_bio": (
        "<html><head><title>Verify you are human - a novel</title></head><body><p>Verify You "
        "Are Human is a novel by Jan Weir about a robot who works in a mill. It won the Tin "
        "Prize in 2019.</p></body></html>"
    ),
    "long_with_wall_title": (
        "<html><head><title>Access Denied</title></head><body><p>The mill of Salen was rebuilt "
        "in 1900 after the flood took its wheel and the owner sold the land. The mill of Salen "
        "was rebuilt in 1901 after the flood took its wheel and the owner sold the land. The "
        "mill of Salen was rebuilt in 1902 after the flood took its wheel and the owner sold "
        "the land. The mill of Salen was rebuilt in 1903 after the flood took its wheel and "
        "the owner sold the land. The mill of Salen was rebuilt in 1904 after the flood took "
        "its wheel and the owner sold the land. The mill of Salen was rebuilt in 1905 after "
        "the flood took its wheel and the owner sold the land. The mill of Salen was rebuilt "
        "in 1906 after the flood took its wheel and the owner sold the land. The mill of Salen "
        "was rebuilt in 1907 after the flood took its wheel and the owner sold the land. The "
        "mill of Salen was rebuilt in 1908 after the flood took its wheel and the owner sold "
        "the land. The mill of Salen was rebuilt in 1909 after the flood took its wheel and "
        "the owner sold the land. The mill of Salen was rebuilt in 1910 after the flood took "
        "its wheel and the owner sold the land. The mill of Salen was rebuilt in 1911 after "
        "the flood took its wheel and the owner sold the land.</p></body></html>"
    ),
    "robots_txt_help": (
        "<html><head><title>Unusual traffic from your computer network - Search "
        "Help</title></head><body><p>If devices on your network seem to be sending automated "
        "traffic, you may see the message Our systems have detected unusual traffic from your "
        "computer network. Wait a while, or turn off your VPN.</p></body></html>"
    ),
    "noscript_img": (
        "<html><head><title>News</title></head><body><noscript><img src=x>Enable "
        "JavaScript</noscript><p>A storm took the roof of the Salen mill on "
        "Friday.</p></body></html>"
    ),
    "ddos_history": (
        "<html><head><title>DDoS-Guard</title></head><body><p>DDoS-Guard is a Russian provider "
        "of DDoS protection founded in 2011 in Rostov-on-Don by Evgeny "
        "Marchenko.</p></body></html>"
    ),
    "px_company": (
        "<html><head><title>PerimeterX</title></head><body><p>PerimeterX was founded in 2014 "
        "by Omri Iluz and Ido Safruti. Its product shows a press and hold button to confirm "
        "that visitors are human.</p></body></html>"
    ),
    "cn": (
        "<html><head><title>验证码 - "
        "百科</title></head><body><p>验证码是一种区分用户是计算机还是人的公共全自动程序，"
        "由卡内基梅隆大学的路易斯·冯·安于2003年提出。</p></body></html>"
    ),
    "hotel": (
        "<html><head><title>Hotel Salen</title></head><body><p>Please verify your booking. "
        "Rooms from 90 EUR. You have been upgraded.</p></body></html>"
    ),
    "loading": (
        "<html><head><title>Loading... (TV series)</title></head><body><p>Loading... is a 2012 "
        "series in nine parts about a mill.</p></body></html>"
    ),
    "table": (
        "<html><head><title>Robot or human? Quiz</title></head><body><p>Question 1: is this "
        "poem by a robot or human? It was written by Ada Lin in 1984.</p></body></html>"
    ),
    "subscribe": (
        "<html><head><title>The mill's last miller</title></head><body><p>To continue reading, "
        "subscribe. The last miller of Salen, Jan Weir, died in 1961 aged 84.</p></body></html>"
    ),
    "waiting": (
        "<html><head><title>One moment, please</title></head><body><p>One Moment, Please was a "
        "radio show hosted by Ada Lin from 1951 to 1954 in Salen.</p></body></html>"
    ),
    "lyrics": (
        "<html><head><title>Access Denied - album</title></head><body><p>Access Denied is the "
        "debut album of Weir. It has ten songs and was released on 4 May "
        "1999.</p></body></html>"
    ),
}
